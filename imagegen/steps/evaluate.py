"""Evaluates a step with the values that it reads: drafts of its resources, its files and its artifacts' URLs. Pure.

A draft is a resource of resources.yml with every template evaluated. `resolve` adds the digests of artifacts, which
only the lock has. `applies` decides before whether a step is in the plan."""

import contextlib
import dataclasses
import hashlib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import pydantic

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.templating import TemplateError, UnknownNameError, evaluate, render_text, render_value
from imagegen.config.own_files import OwnFile
from imagegen.config.problems import model_problems, nearest, quoted
from imagegen.config.yaml import Document, YamlPath
from imagegen.fetch.request import ArtifactRequest, Override, TakenFile, make_url
from imagegen.inspect.members import file_name, is_program
from imagegen.steps import release_record
from imagegen.steps.effects import DECLARING_KINDS, EFFECTS, NONE, Effect, plan_effect
from imagegen.steps.kinds import ENGINE_MODULE, KINDS
from imagegen.steps.model import ArtifactMeta, Step
from imagegen.steps.resource import FIRST_BOOT, ArtifactForm

ALWAYS = "always"
"""The reason of a step without a `when`."""
_UNTIL_HINT = "remove it, unless a node may change the resource after its first boot"


@dataclasses.dataclass(frozen=True)
class Draft:
    """A resource without the digests of the lock. `path` is its place in resources.yml."""

    kind: str
    fields: dict[str, Any]
    path: YamlPath
    component: tuple[str, str] | None = None
    """The name and version of the component that it installs."""
    until: str | None = None
    """`first-boot` if a node may change it after its first boot."""
    effects: tuple[Effect, ...] = ()
    """What must be so after its script ran."""


@dataclasses.dataclass(frozen=True)
class GivenText:
    """A file of the operator's: the config's key that names it, and its name without folders."""

    key: str
    name: str


@dataclasses.dataclass(frozen=True)
class EvaluatedStep:
    """A step, evaluated for one config and target."""

    step: Step
    drafts: tuple[Draft, ...]
    texts: Mapping[str, bytes]
    requests: Mapping[str, ArtifactRequest]
    components: tuple[tuple[str, str], ...]
    """The components that its artifacts and resources install, each with its version."""
    because: str
    """Why it is in the plan: `always`, or its `when`."""
    earlier: frozenset[str] = frozenset()
    """All steps that it must follow, directly or through other steps, even steps that are not in the plan."""
    given: Mapping[str, GivenText] = dataclasses.field(default_factory=dict)
    """Those of `texts` that the config names, by their paths in the bundle."""


def applies(step: Step, context: Mapping[str, object]) -> bool:
    """Whether the step is in the plan: its `when` is true, or it has none."""
    if step.meta.when is None:
        return True
    try:
        return bool(evaluate(step.meta.when, _visible(step, context)))
    except TemplateError as error:
        raise ConfigError(
            f"step {step.name} cannot be used",
            problems=[step.described.problem(("when",), str(error), _hint(error))],
        ) from None


def rotated_logs(step: Step, context: Mapping[str, object]) -> list[str]:
    """The logs of the step that a task of the image must keep small."""
    if not step.meta.rotates:
        return []
    visible, problems = _visible(step, context), list[Problem]()
    found = []
    for index, path in enumerate(step.meta.rotates):
        with _adding_to(problems, step.described, ("rotates", index)):
            found.append(render_text(path, visible))
    if problems:
        raise ConfigError(f"step {step.name} cannot be used", problems=problems)
    return [path for path in found if path]


def evaluate_step(
    step: Step,
    context: Mapping[str, object],
    overrides: Mapping[str, Override],
    own_files: Mapping[str, OwnFile] = types.MappingProxyType({}),
) -> EvaluatedStep:
    """Evaluate a step. `own_files` are those beside the config. One error holds all problems of its files."""
    visible = _visible(step, context)
    problems: list[Problem] = []
    drafted = tuple(_drafts(step, visible, problems))
    drafts = [draft for draft, _ in drafted]
    components = [draft.component for draft in drafts if draft.component]
    requests = _requests(step, visible, overrides, drafts, components, problems)
    texts: dict[str, bytes] = {}
    given: dict[str, GivenText] = {}
    finished = []
    for draft, seen in drafted:
        own = draft.fields.get("own")
        if draft.fields.get("release_record"):
            finished.append(_with_release_record(draft))
        elif own is None:
            is_bundled = "source" in KINDS[draft.kind].model_fields
            finished.append(_with_text(step, draft, seen, texts, problems) if is_bundled else draft)
        elif own in own_files:
            file = own_files[own]
            finished.append(_with_own_file(draft, file, step, texts))
            given.setdefault(str(finished[-1].fields["source"]), GivenText(str(own), file.name))
        else:
            message = f"the config has no file {quoted(own)}"
            problems.append(step.resources.problem((*draft.path, "own"), message, nearest(str(own), sorted(own_files))))
        problems += _artifact_problems(step, draft, visible, requests)
    if problems:
        raise ConfigError(f"step {step.name} cannot be used", problems=problems)
    because = step.meta.when or ALWAYS
    return EvaluatedStep(step, tuple(finished), texts, requests, tuple(components), because, given=given)


def _visible(step: Step, context: Mapping[str, object]) -> dict[str, object]:
    """The values that the step's `reads` names, with `paths` and the step's options.

    Of a section that the config omits, the step sees only that the section is None."""
    visible: dict[str, object] = {"paths": context["paths"]}
    if step.meta.options:
        given: Any = context["step_options"]
        visible["options"] = step.options(given)
    for index, name in enumerate(step.meta.reads):
        source: Any = context
        into: dict[str, Any] = visible
        *parents, last = name.split(".")
        try:
            for parent in parents:
                if source[parent] is None:
                    last = parent
                    break
                source = source[parent]
                into = into.setdefault(parent, {})
            into[last] = source[last]
        except (KeyError, TypeError):
            hint = nearest(name.rpartition(".")[2], sorted(source) if isinstance(source, dict) else [])
            raise ConfigError(
                f"step {step.name} cannot be used",
                problems=[step.described.problem(("reads", index), f"unknown value {quoted(name)}", hint)],
            ) from None
    return visible


def _drafts(
    step: Step, visible: Mapping[str, object], problems: list[Problem]
) -> Iterator[tuple[Draft, Mapping[str, object]]]:
    """Each draft, with the values that its template sees too."""
    entries = step.resources.data
    if not isinstance(entries, list):
        problems.append(step.resources.problem((), "must be a list of resources"))
        return
    path: YamlPath
    for index, entry in enumerate(entries):
        keys = set(entry) if isinstance(entry, dict) else set[str]()
        kinds = [*(keys - {"when", "each", "component", "version", "until", "effects"})]
        if len(keys & {"component", "version"}) == 1:
            problems.append(step.resources.problem((index,), "must have both component and version, or neither"))
        elif "until" in keys and entry["until"] != FIRST_BOOT:
            path = (index, "until")
            message = f"unknown value {quoted(str(entry['until']))} (known: {FIRST_BOOT})"
            problems.append(step.resources.problem(path, message, _UNTIL_HINT))
        elif len(kinds) != 1 or not isinstance(entry[kinds[0]], dict):
            problems.append(step.resources.problem((index,), "must be a map with one kind of resource and its fields"))
        elif kinds[0] not in KINDS:
            message, hint = f"unknown kind of resource {quoted(kinds[0])}", nearest(kinds[0], sorted(KINDS))
            problems.append(step.resources.problem((index, kinds[0]), message, hint))
        else:
            path = (index, kinds[0])
            with _adding_to(problems, step.resources, path):
                for draft, context in _instances(kinds[0], entry, visible, path):
                    effects = tuple(_effects(step, entry.get("effects"), draft, context, problems))
                    yield dataclasses.replace(draft, effects=effects), context


def _effects(
    step: Step, declared: object, draft: Draft, context: Mapping[str, object], problems: list[Problem]
) -> Iterator[Effect]:
    """The effects that an entry declares for its script. Adds a problem for each that is invalid."""
    place: YamlPath = (draft.path[0], "effects")
    if declared is None:
        return
    if draft.kind not in DECLARING_KINDS:
        message = f"only {', '.join(sorted(DECLARING_KINDS))} can have effects: {draft.kind} runs no script"
        problems.append(step.resources.problem(place, message, "remove them"))
    elif isinstance(declared, dict) and declared.keys() == {NONE} and isinstance(declared[NONE], str):
        return
    elif not isinstance(declared, list):
        hint = "write `effects: {none: REASON}` for a script that leaves nothing behind"
        problems.append(step.resources.problem(place, "must be a list of resources, or none with the reason", hint))
    else:
        for index, one in enumerate(declared):
            kinds = [*(one.keys() - {"when", "each"})] if isinstance(one, dict) else []
            if len(kinds) != 1 or kinds[0] not in EFFECTS:
                message = "must be a map with one kind of resource, and its fields"
                problems.append(
                    step.resources.problem((*place, index), message, nearest(str(*kinds[:1]), sorted(EFFECTS)))
                )
                continue
            try:
                for instance, _ in _instances(kinds[0], one, context, place):
                    yield plan_effect(kinds[0], EFFECTS[kinds[0]].model_validate(instance.fields))
            except pydantic.ValidationError as error:
                problems += model_problems(error, step.resources, EFFECTS[kinds[0]], (*place, index, kinds[0]))


@contextlib.contextmanager
def _adding_to(problems: list[Problem], document: Document, path: YamlPath, prefix: str = "") -> Iterator[None]:
    """Add the error of a template at this place to the problems, and go on."""
    try:
        yield
    except TemplateError as error:
        problems.append(document.problem(path, f"{prefix}{error}", _hint(error)))


def _instances(
    kind: str, entry: dict[str, object], visible: Mapping[str, object], path: YamlPath
) -> Iterator[tuple[Draft, Mapping[str, object]]]:
    for context in _contexts(entry.get("each"), visible):
        if "when" in entry and not evaluate(str(entry["when"]), context):
            continue
        component = render_value([entry["component"], entry["version"]], context) if "component" in entry else None
        until = str(entry["until"]) if "until" in entry else None
        yield (
            Draft(kind, render_value(entry[kind], context), path, tuple(component) if component else None, until),
            context,
        )


def _contexts(each: object, visible: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The values for each item of a list, with the `item` and its `number`, from 1. Without a list only `visible`."""
    if each is None:
        return [visible]
    return [{**visible, "item": item, "number": at} for at, item in enumerate(evaluate(str(each), visible), 1)]


def _requests(
    step: Step,
    visible: Mapping[str, object],
    overrides: Mapping[str, Override],
    drafts: Sequence[Draft],
    components: list[tuple[str, str]],
    problems: list[Problem],
) -> dict[str, ArtifactRequest]:
    """The artifacts to download. Adds the components that they install to `components`."""
    requests = {}
    for name, meta in step.meta.artifacts.items():
        with _adding_to(problems, step.described, ("artifacts", name)):
            if not _holds(meta.when, visible):
                continue
            for context in _contexts(meta.each, visible):
                request = _request(name, meta, context, overrides)
                files = tuple(_taken_files(request.name, drafts)) if request.own else ()
                form = _form(request.name, step, drafts)
                requests[request.name] = dataclasses.replace(request, form=form, files=files)
                if meta.component is not None:
                    components.append((meta.component, render_text(str(meta.version), context)))
    return requests


def _request(
    name: str, meta: ArtifactMeta, context: Mapping[str, object], overrides: Mapping[str, Override]
) -> ArtifactRequest:
    """An artifact: a declared one, or that of one item of its list."""
    if meta.override is None:
        url = render_text(str(meta.url), context)
        sha256 = None if meta.sha256 is None else evaluate(meta.sha256, context)
        key = render_text(str(meta.key), context)
        own = f"{name}-{context['number']}"
        return ArtifactRequest(own, url, sha256, "file", key, published=url, own=True, any_name=True)
    given = next((one for one in meta.overrides if one in overrides), None)
    override = overrides[given] if given else None
    published = render_text(meta.url or f"{str(meta.base).rstrip('/')}/{meta.path}", context)
    return ArtifactRequest(
        name=name,
        url=_own_url(meta, context, override, single=given == meta.file_override) if override else published,
        sha256=override.sha256 if override else None,
        form="file",
        key=f"overrides.{given or meta.override}",
        file_key=f"overrides.{meta.file_override}" if meta.file_override else "",
        published=published,
        own=override is not None,
        product=meta.product or "",
        version=render_text(meta.release or meta.version or "", context),
        signer=override.signer if override else None,
    )


def _own_url(meta: ArtifactMeta, visible: Mapping[str, object], override: Override, *, single: bool) -> str:
    if meta.base is None or single:
        return override.url
    version = meta.version and render_text(meta.version, visible)
    return make_url(override.url, render_text(str(meta.path), visible), version)


def _form(artifact: str, step: Step, drafts: Sequence[Draft]) -> ArtifactForm:
    """The form that the resources need which use the artifact: the strictest of their kinds.

    A resource counts even if its `when` is false, because one lock serves every target."""
    entries = step.resources.data if isinstance(step.resources.data, list) else []
    declared = [item for entry in entries if isinstance(entry, dict) for item in entry.items()]
    uses = [*((draft.kind, draft.fields) for draft in drafts), *declared]
    found = [use for use in uses if isinstance(use[1], dict) and use[1].get("artifact") == artifact]
    forms = {KINDS[kind].artifact_form for kind, _ in found if kind in KINDS}
    forms |= {"archive" for _, fields in found if fields.get("member")}
    return min(forms - {"file"}, default="file")


def _taken_files(artifact: str, drafts: Sequence[Draft]) -> dict[TakenFile, None]:
    """The files that the resources take from an artifact, each once. A program is never the bytes of an archive."""
    found: list[TakenFile] = []
    for draft in drafts:
        if draft.fields.get("artifact") != artifact:
            continue
        name = str(draft.fields.get("path")).rpartition("\\")[2]
        if draft.kind == "file" and is_program(name) and "sha256" not in draft.fields:
            found.append(TakenFile(name, name))
        elif draft.kind == "extract":
            found.append(TakenFile(str(draft.fields.get("member")), name))
        elif draft.kind == "archive":
            paths = [str(path).replace("\\", "/") for path in draft.fields.get("expect") or ()]
            found += [TakenFile(path, file_name(path)) for path in paths]
    return dict.fromkeys(found)


def _holds(when: str | None, visible: Mapping[str, object]) -> bool:
    return when is None or bool(evaluate(when, visible))


def _artifact_problems(
    step: Step, draft: Draft, visible: Mapping[str, object], requests: Mapping[str, ArtifactRequest]
) -> Iterator[Problem]:
    artifact: Any = draft.fields.get("artifact")
    if artifact in requests:
        return
    meta = step.meta.artifacts.get(artifact)
    if artifact is not None and meta is None:
        hint = nearest(str(artifact), sorted(step.meta.artifacts)) or "declare it in meta/step.yml under artifacts"
        yield step.resources.problem(draft.path, f"unknown artifact {quoted(artifact)}", hint)
    # An invalid `when` is reported where the artifact is declared.
    with contextlib.suppress(TemplateError):
        if meta is not None and not _holds(meta.when, visible):
            message = f"the artifact {quoted(artifact)} is not used here: its `when` is false"
            yield step.resources.problem(draft.path, message, "give the resource the same `when`")


def _hint(error: TemplateError) -> str:
    return "list it under `reads` in meta/step.yml" if isinstance(error, UnknownNameError) else ""


def _with_release_record(draft: Draft) -> Draft:
    """The file in the bundle whose content the plan decides last."""
    fields = {name: value for name, value in draft.fields.items() if name != "release_record"}
    return dataclasses.replace(
        draft, fields={**fields, "source": release_record.SOURCE, "sha256": release_record.UNDECIDED}
    )


def _with_own_file(draft: Draft, file: OwnFile, step: Step, texts: dict[str, bytes]) -> Draft:
    """Replace the config's key of a file by the file in the bundle, and add its bytes to `texts`."""
    digest = hashlib.sha256(file.data).hexdigest()
    path = PurePosixPath(file.name)
    # The digest, because files of several folders may have the same name.
    source = f"files/{step.name}/{path.stem}-{digest[:16]}{path.suffix}"
    texts[source] = file.data
    fields = {name: value for name, value in draft.fields.items() if name != "own"}
    return dataclasses.replace(draft, fields={**fields, "source": source, "sha256": digest})


def _with_text(
    step: Step, draft: Draft, seen: Mapping[str, object], texts: dict[str, bytes], problems: list[Problem]
) -> Draft:
    """Replace a file resource's template or static file by the file in the bundle, and add its bytes to `texts`."""
    fields = dict(draft.fields)
    template = fields.pop("template", None)
    key, folder = ("source", "files") if template is None else ("template", "templates")
    if draft.fields.get(key) in (None, ENGINE_MODULE):
        return draft
    known: Mapping[str, str | bytes] = step.files if template is None else step.templates
    name, place = str(draft.fields[key]), (*draft.path, key)
    if name not in known:
        message = f"the file {folder}/{name} does not exist"
        problems.append(step.resources.problem(place, message, nearest(name, sorted(known))))
        return draft
    with _adding_to(problems, step.resources, place, f"templates/{name}: "):
        data = step.files[name] if template is None else render_text(step.templates[name], seen).encode()
        digest = hashlib.sha256(data).hexdigest()
        if template is not None:
            path = PurePosixPath(name.removesuffix(".j2"))
            # With `each`, every text has its own name, which does not depend on the order.
            name = f"{path.stem}-{digest[:16]}{path.suffix}" if "item" in seen else str(path)
        bundled = f"files/{step.name}/{name}"
        if texts.setdefault(bundled, data) != data:
            message = f"two different files of this step have the same path {bundled} in the bundle"
            problems.append(step.resources.problem(place, message, "rename one of the two"))
        return dataclasses.replace(draft, fields={**fields, "source": bundled, "sha256": digest})
    return draft
