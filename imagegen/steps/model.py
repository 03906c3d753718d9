"""The model of a step's folder."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic

from imagegen.contents import read_folder
from imagegen.documents.yaml import Document, read_yaml
from imagegen.resources.model import Name, Strict

# Part of the tag `<component>_version`.
ComponentName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")]


class ArtifactMeta(Strict):
    """The URL of an artifact: `base`/`path`, or one `url`. The config's `override` replaces it.

    `component` is what the artifact installs; tags and manifests show its `version`.
    """

    override: Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+_url$")]
    url: str | None = None
    base: str | None = None
    path: str | None = None
    when: str | None = None
    component: ComponentName | None = None
    version: str | None = None

    @pydantic.model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.url is None) == (self.base is None) or (self.base is None) != (self.path is None):
            raise ValueError("must have either url, or base and path")
        if (self.component is None) != (self.version is None):
            raise ValueError("must have both component and version, or neither")
        return self


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

    The step follows the steps of `after` and the restarts of `needs_restart_of`. With `rounds`, its resources are
    repeated, and a restart follows each round.
    """

    summary: Annotated[str, pydantic.StringConstraints(min_length=10)]
    when: str | None = None
    after: list[Name] = []
    needs_restart_of: list[Name] = []
    rounds: Annotated[int, pydantic.Field(ge=1, le=10)] = 1
    reads: list[str]
    timeout_s: Annotated[int, pydantic.Field(ge=10, le=14400)]
    artifacts: dict[Name, ArtifactMeta] = {}
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

    def options(self, given: Mapping[str, Mapping[str, OptionValue]]) -> dict[str, OptionValue | None]:
        """The values of its options: those that a config gives for each step, and the defaults."""
        defaults = {name: declared.default for name, declared in self.meta.options.items()}
        return {**defaults, **given.get(self.name, {})}

    @functools.cached_property
    def resources(self) -> Document:
        """resources.yml."""
        return read_yaml(self.folder / "resources.yml", f"{self.shown_as}/resources.yml")

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
