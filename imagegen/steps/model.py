"""The model of a step's folder, and the search for such folders: the shipped ones and the operator's own.

Reads the folders of steps, nothing else."""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic

from imagegen.base.contents import ROLES, Contents, StepRoot, read_folder
from imagegen.base.errors import ConfigError, Problem
from imagegen.catalog.products import find_product, find_products
from imagegen.config.problems import model_problems, nearest, quoted
from imagegen.config.yaml import Document, read_yaml
from imagegen.steps.resource import Name, Strict

PARTS = ("meta/step.yml", "resources.yml")
_PATH = ("steps_path",)
_IN_LAYOUT = re.compile(r"\{\{ paths\.(\w+) \}\}\\([^{}]+)")
# Part of the tag `<component>_version`.
ComponentName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")]


class ArtifactMeta(Strict):
    """An artifact: the `product` of the catalogue that it is, or its URL, which is `base`/`path` or one `url`. The
    config's `override` replaces the URL.

    A product gives URL and overrides. The step gives the `version`, the `path` in a folder, the `release` if the
    product's URL has another text than the version, and the `values` of other placeholders.

    The override of a base is a folder, a template or an archive: imagegen/fetch/request.py. `file_override` is the
    override of this file only, and wins.

    With `each`, the config lists the URLs: every item is an artifact, `<name>-<number of the item>`, and `key` is the
    config's key of its URL. `component` is what the artifact installs; tags and manifests show its `version`, which a
    template can have too.
    """

    product: str | None = None
    release: str | None = None
    values: dict[str, str] = {}
    override: Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+_url$")] | None = None
    file_override: Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+_url$")] | None = None
    each: str | None = None
    key: str | None = None
    sha256: str | None = None
    """The expression of the digest that the config gives for an item."""
    url: str | None = None
    base: str | None = None
    path: str | None = None
    when: str | None = None
    component: ComponentName | None = None
    version: str | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_product(cls, given: object) -> object:
        """The addresses and overrides of the product, which a step does not write again."""
        if not isinstance(given, dict) or not isinstance(name := given.get("product"), str):
            return given
        if again := sorted(given.keys() & {"url", "base", "override", "file_override", "each"}):
            raise ValueError(f"must have either product or {again[0]}")
        product = find_product(name)
        if product is None:
            known = ", ".join(sorted(one.name for one in find_products()))
            raise ValueError(f"unknown product {quoted(name)} (known: {known})")
        if not isinstance(version := given.get("release", given.get("version")), str):
            raise ValueError("must have version with product")
        address = product.template(product.url or product.base, version, given.get("values", {}))
        file_override = product.file_overrides.get(given.get("path", ""))
        own = {"override": product.override, "file_override": file_override}
        return {**given, **own, "url" if product.url else "base": address}

    @pydantic.model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.url is None) == (self.base is None) or (self.base is None) != (self.path is None):
            raise ValueError("must have either url, or base and path")
        if self.component is not None and self.version is None:
            raise ValueError("must have version with component")
        if self.product is None and (self.release or self.values):
            raise ValueError("must have product with release and values")
        if self.file_override is not None and (self.base is None or self.override is None):
            raise ValueError("must have base and override with file_override")
        if (self.override is None) == (self.each is None):
            raise ValueError("must have either override or each")
        if (self.each is None) != (self.key is None) or (self.each is not None and self.url is None):
            raise ValueError("must have each, key and url together")
        if self.sha256 is not None and self.each is None:
            raise ValueError("must have each with sha256: an override has a sha256 of its own")
        return self

    @property
    def overrides(self) -> tuple[str, ...]:
        """The names of the overrides that replace it. The first of them that a config has wins."""
        return tuple(name for name in (self.file_override, self.override) if name)


OptionValue = str | int | bool | list[str]


class OptionMeta(Strict):
    """An option of an operator's own step, set by the config's `step_options`. It is required if it has no default."""

    type: Literal["string", "integer", "boolean", "list"]
    default: OptionValue | None = None
    description: Annotated[str, pydantic.StringConstraints(min_length=10)]
    example: OptionValue

    @pydantic.model_validator(mode="after")
    def _values_fit(self) -> Self:
        for name, value in (("default", self.default), ("example", self.example)):
            if value is not None and not self.accepts(value):
                raise ValueError(f"the {name} must be of type {self.type}")
        return self

    def accepts(self, value: object) -> bool:
        """Whether a value has the option's type."""
        if isinstance(value, list):
            return self.type == "list" and all(isinstance(item, str) for item in value)
        # By exact type, because True is an integer too.
        return type(value) is {"string": str, "integer": int, "boolean": bool}.get(self.type)


class StepMeta(Strict):
    """meta/step.yml. `when` is an expression with the values that the step reads. Without it the step is always used.

    The step follows the steps of `after` and the restarts of `needs_restart_of`, and with `last` every other step. With
    `first`, every other step follows it. With `rounds`, its resources are repeated, and a restart follows each round.
    """

    summary: Annotated[str, pydantic.StringConstraints(min_length=10)]
    when: str | None = None
    after: list[Name] = []
    needs_restart_of: list[Name] = []
    first: bool = False
    last: bool = False
    rounds: Annotated[int, pydantic.Field(ge=1, le=10)] = 1
    reads: list[str]
    timeout_s: Annotated[int, pydantic.Field(ge=10, le=14400)]
    artifacts: dict[Name, ArtifactMeta] = {}
    rotates: list[str] = []
    """The logs that nobody keeps small: templates of their paths. An empty one is none."""
    options: dict[ComponentName, OptionMeta] = {}


@dataclasses.dataclass(frozen=True)
class Step:
    """A step's folder. meta/step.yml is read at once, the rest when it is needed."""

    name: str
    folder: Path
    shown_as: str
    meta: StepMeta
    described: Document
    """meta/step.yml with its lines."""

    @property
    def shipped(self) -> bool:
        """Whether it is imagegen's own step, not the operator's."""
        return self.folder.parent == ROLES

    def options(self, given: Mapping[str, Mapping[str, OptionValue]]) -> dict[str, OptionValue | None]:
        """The values of its options: those that a config gives for each step, and the defaults."""
        defaults = {name: declared.default for name, declared in self.meta.options.items()}
        return {**defaults, **given.get(self.name, {})}

    @functools.cached_property
    def resources(self) -> Document:
        """resources.yml."""
        return read_yaml(self.folder / "resources.yml", f"{self.shown_as}/resources.yml")

    @functools.cached_property
    def own_files(self) -> list[tuple[str, str]]:
        """The files that it declares in folders of the layout: the name of the folder, and the path in it."""
        entries = [item for entry in self.resources.data for item in entry.items() if isinstance(item[1], dict)]
        places = [str(fields.get("path")) for kind, fields in entries if kind in ("file", "extract")]
        for fields in (fields for kind, fields in entries if kind == "archive"):
            places += [f"{fields.get('into')}\\{path}".replace("/", "\\") for path in fields.get("expect", ())]
        return [(found[1], found[2]) for found in map(_IN_LAYOUT.fullmatch, places) if found]

    @functools.cached_property
    def releases(self) -> Document | None:
        """meta/releases.yml, if the step has one: the contents of the files that it downloads, for a rehearsal."""
        file = self.folder / "meta/releases.yml"
        return read_yaml(file, f"{self.shown_as}/meta/releases.yml") if file.exists() else None

    @functools.cached_property
    def templates(self) -> dict[str, str]:
        """The templates by name. They are rendered on the host."""
        return {name: text.decode() for name, text in read_folder(self.folder / "templates").items()}

    @functools.cached_property
    def files(self) -> dict[str, bytes]:
        """The static files by name."""
        return read_folder(self.folder / "files")


def with_own_steps(contents: Contents, document: Document) -> Contents:
    """The content with the operator's own steps. Their folder is relative to the file that names it.

    The folder must exist, and no link may lead out of that file's folder."""
    named = document.data.get(*_PATH)
    # The model rejects other types.
    if not isinstance(named, str):
        return contents
    place = document.place(_PATH)
    beside = Path(place.file if place.line else document.file).parent
    folder = beside / named
    if not folder.is_dir():
        problem = document.problem(_PATH, f"the folder {folder} does not exist", "write a path relative to the config")
    elif not folder.resolve().is_relative_to(beside.resolve()):
        problem = document.problem(_PATH, f"{folder} is outside {beside}", "write a path below the config's folder")
    else:
        return dataclasses.replace(contents, step_roots=(*contents.step_roots, StepRoot(folder, str(folder))))
    raise ConfigError("the steps cannot be used", problems=[problem])


def check_folders(roots: Sequence[StepRoot]) -> list[StepRoot]:
    """The folders of all steps, ordered by root and name. One error holds all missing parts and duplicate names. Reads
    no file, only names."""
    folders = [
        StepRoot(path, f"{root.shown_as}/{path.name}")
        for root in roots
        for path in sorted(path for path in root.folder.iterdir() if path.is_dir())
    ]
    problems = [
        Problem(f"{step.shown_as}/{part}", 0, "", "is missing", f"a step needs {' and '.join(PARTS)}")
        for step in folders
        for part in PARTS
        if not (step.folder / part).is_file()
    ]
    first = {step.folder.name: step for step in reversed(folders)}
    problems += [
        Problem(step.shown_as, 0, "", f"{first[step.folder.name].shown_as} has the same name", "rename this folder")
        for step in folders
        if first[step.folder.name] is not step
    ]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
    return folders


def load_steps(roots: Sequence[StepRoot]) -> dict[str, Step]:
    """All steps below these folders, by name."""
    steps: dict[str, Step] = {}
    problems: list[Problem] = []
    for folder in check_folders(roots):
        name = folder.folder.name
        try:
            steps[name] = _load_step(folder.folder, folder.shown_as)
        except ConfigError as error:
            problems += error.problems or [Problem(name, 0, "", error.message, error.hint)]
    # Names are checked only if every folder could be read: a step that cannot be read is not an unknown step.
    if not problems:
        problems = [
            step.described.problem((key, index), f"unknown step {quoted(name)}", nearest(name, sorted(steps)))
            for step in steps.values()
            for key, names in (("after", step.meta.after), ("needs_restart_of", step.meta.needs_restart_of))
            for index, name in enumerate(names)
            if name not in steps
        ]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
    return steps


def _load_step(folder: Path, shown_as: str) -> Step:
    """A step. The shipped ones do not change while imagegen runs: they are read once for all configs and targets."""
    return _read_shipped_step(folder, shown_as) if folder.is_relative_to(ROLES) else _read_step(folder, shown_as)


@functools.cache
def _read_shipped_step(folder: Path, shown_as: str) -> Step:
    return _read_step(folder, shown_as)


def _read_step(folder: Path, shown_as: str) -> Step:
    document = read_yaml(folder / "meta/step.yml", f"{shown_as}/meta/step.yml")
    try:
        return Step(folder.name, folder, shown_as, StepMeta.model_validate(document.data), document)
    except pydantic.ValidationError as error:
        raise ConfigError("", problems=model_problems(error, document, StepMeta)) from None
