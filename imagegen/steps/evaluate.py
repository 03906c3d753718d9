"""A step and what it may read in; its drafts of resources, its texts and its artifacts' addresses out. Pure.

A draft is a resource as resources.yml says it, with every template evaluated; what only the lock knows (the digests of
an artifact's bytes) is filled in by resolve. Whether a step is in the plan at all is asked first, of `applies`."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from imagegen.artifacts.request import ArtifactRequest
from imagegen.documents.problems import nearest
from imagegen.errors import ConfigError
from imagegen.resources.kinds import KINDS
from imagegen.steps.own import options_of
from imagegen.templating import TemplateError, UnknownNameError, evaluate, render_text, render_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.artifacts.override import Override
    from imagegen.documents.yaml import YamlPath
    from imagegen.errors import Problem
    from imagegen.resources.model import ArtifactForm
    from imagegen.steps.model import ArtifactMeta, Step

ALWAYS = "always"
"""Why a step without a `when` is in the plan."""

_MODIFIERS = ("when", "each", "component", "version")


@dataclasses.dataclass(frozen=True)
class Draft:
    """One resource before the lock's digests; `path` is its place in resources.yml."""

    kind: str
    fields: dict[str, Any]
    path: YamlPath
    component: tuple[str, str] | None = None
    """What it brings to the machine, and in which version."""


@dataclasses.dataclass(frozen=True)
class EvaluatedStep:
    """A step for one config and target."""

    step: Step
    drafts: tuple[Draft, ...]
    texts: Mapping[str, bytes]
    requests: Mapping[str, ArtifactRequest]
    components: tuple[tuple[str, str], ...]
    """What its artifacts and resources bring, each with its version."""
    because: str
    """Why it is in the plan: `always`, or its `when`, which holds."""
    earlier: frozenset[str] = frozenset()
    """Every step that it must follow, also through steps that are not in the plan."""


def applies(step: Step, context: Mapping[str, object]) -> bool:
    """Whether the step is in the plan: its `when` holds, or it has none."""
    if step.meta.when is None:
        return True
    try:
        return bool(evaluate(step.meta.when, _visible(step, context)))
    except TemplateError as error:
        problem = step.described.problem(("when",), str(error), _hint(error))
        raise ConfigError(f"step {step.name} cannot be used", problems=[problem]) from None


def evaluate_step(
    step: Step,
    context: Mapping[str, object],
    overrides: Mapping[str, Override],
) -> EvaluatedStep:
    """Every problem of the step's files at once, or the step evaluated."""
    visible = _visible(step, context)
    problems: list[Problem] = []
    drafted = tuple(_drafts(step, visible, problems))
    drafts = [draft for draft, _ in drafted]
    components = [draft.component for draft in drafts if draft.component]
    requests = _requests(step, visible, overrides, drafts, components, problems)
    texts: dict[str, bytes] = {}
    finished = []
    for draft, seen in drafted:
        finished.append(_with_text(step, draft, seen, texts, problems) if draft.kind == "file" else draft)
        problems += _artifact_problems(step, draft, visible)
    if problems:
        raise ConfigError(f"step {step.name} cannot be used", problems=problems)
    return EvaluatedStep(step, tuple(finished), texts, requests, tuple(components), step.meta.when or ALWAYS)


def _visible(step: Step, context: Mapping[str, object]) -> dict[str, object]:
    """What the step's `reads` lets it see; `paths` and its own options are always there.

    What lies in a section that the config leaves out is not there either: the step sees that the section is None."""
    visible: dict[str, object] = {"paths": context["paths"]}
    if step.meta.options:
        given: Any = context["step_options"]
        visible["options"] = options_of(step, given)
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
            known = sorted(source) if isinstance(source, dict) else []
            message, hint = f"there is nothing called {name!r} to read", nearest(name.rpartition(".")[2], known)
            problem = step.described.problem(("reads", index), message, hint)
            raise ConfigError(f"step {step.name} cannot be used", problems=[problem]) from None
    return visible


def _drafts(
    step: Step, visible: Mapping[str, object], problems: list[Problem]
) -> Iterator[tuple[Draft, Mapping[str, object]]]:
    """Each with what it saw, which is what its template sees too."""
    entries = step.resources.data
    if not isinstance(entries, list):
        problems.append(step.resources.problem((), "must be a list of resources"))
        return
    for index, entry in enumerate(entries):
        path: YamlPath = (index,)
        kinds = [key for key in entry if key not in _MODIFIERS] if isinstance(entry, dict) else []
        if isinstance(entry, dict) and ("component" in entry) != ("version" in entry):
            problems.append(step.resources.problem(path, "must say component and version together"))
            continue
        if len(kinds) != 1 or not isinstance(entry[kinds[0]], dict):
            problems.append(step.resources.problem(path, "must be one kind of resource with its fields"))
            continue
        kind = kinds[0]
        if kind not in KINDS:
            message = f"unknown kind of resource {kind!r}"
            problems.append(step.resources.problem((index, kind), message, nearest(kind, sorted(KINDS))))
            continue
        try:
            yield from _instances(kind, entry, visible, (index, kind))
        except TemplateError as error:
            problems.append(step.resources.problem((index, kind), str(error), _hint(error)))


def _instances(
    kind: str, entry: dict[str, object], visible: Mapping[str, object], path: YamlPath
) -> Iterator[tuple[Draft, Mapping[str, object]]]:
    items = evaluate(str(entry["each"]), visible) if "each" in entry else [None]
    for item in items:
        context = {**visible, "item": item} if "each" in entry else visible
        if "when" in entry and not evaluate(str(entry["when"]), context):
            continue
        component = render_value([entry["component"], entry["version"]], context) if "component" in entry else None
        yield Draft(kind, render_value(entry[kind], context), path, tuple(component) if component else None), context


def _requests(
    step: Step,
    visible: Mapping[str, object],
    overrides: Mapping[str, Override],
    drafts: Sequence[Draft],
    components: list[tuple[str, str]],
    problems: list[Problem],
) -> dict[str, ArtifactRequest]:
    """Every artifact that is asked for; what each brings is added to `components`."""
    requests = {}
    for name, meta in step.meta.artifacts.items():
        override = overrides.get(meta.override)
        try:
            if not _holds(meta.when, visible):
                continue
            published = _address(meta, visible, None)
            url = _address(meta, visible, override)
            if meta.component is not None:
                components.append((meta.component, render_text(str(meta.version), visible)))
        except TemplateError as error:
            problems.append(step.described.problem(("artifacts", name), str(error), _hint(error)))
            continue
        requests[name] = ArtifactRequest(
            name=name,
            url=url,
            sha256=override.sha256 if override else None,
            form=_form(name, step, drafts),
            override=meta.override,
            published=published,
        )
    return requests


def _address(meta: ArtifactMeta, visible: Mapping[str, object], override: Override | None) -> str:
    if meta.url is not None:
        return override.url if override else render_text(meta.url, visible)
    base = override.url if override else render_text(str(meta.base), visible)
    return f"{base.rstrip('/')}/{render_text(str(meta.path), visible)}"


def _form(artifact: str, step: Step, drafts: Sequence[Draft]) -> ArtifactForm:
    """What the kinds of resource that use the artifact need: the strictest of them.

    A resource counts also where its `when` leaves it out: one lock serves every target."""
    entries = step.resources.data if isinstance(step.resources.data, list) else []
    written = [item for entry in entries if isinstance(entry, dict) for item in entry.items()]
    uses = [*((draft.kind, draft.fields) for draft in drafts), *written]
    kinds = {kind for kind, fields in uses if isinstance(fields, dict) and fields.get("artifact") == artifact}
    forms = {KINDS[kind].artifact_form for kind in kinds & KINDS.keys()}
    return min(forms - {"file"}, default="file")


def _holds(when: str | None, visible: Mapping[str, object]) -> bool:
    return when is None or bool(evaluate(when, visible))


def _artifact_problems(step: Step, draft: Draft, visible: Mapping[str, object]) -> Iterator[Problem]:
    artifact = draft.fields.get("artifact")
    if artifact is None:
        return
    meta = step.meta.artifacts.get(artifact)
    if meta is None:
        hint = nearest(str(artifact), sorted(step.meta.artifacts)) or "declare it in meta/step.yml under artifacts"
        yield step.resources.problem(draft.path, f"the step has no artifact {artifact!r}", hint)
        return
    try:
        there = _holds(meta.when, visible)
    except TemplateError:
        return  # told already, where the artifact is declared
    if not there:
        message = f"the artifact {artifact!r} is left out: its `when` does not hold"
        yield step.resources.problem(draft.path, message, "give the resource a `when` that leaves it out too")


def _hint(error: TemplateError) -> str:
    return "meta/step.yml's `reads` says what is visible" if isinstance(error, UnknownNameError) else ""


def _with_text(
    step: Step, draft: Draft, seen: Mapping[str, object], texts: dict[str, bytes], problems: list[Problem]
) -> Draft:
    """A file resource that names a template or a static file, as one that names the bundled bytes."""
    fields = dict(draft.fields)
    template, source = fields.pop("template", None), fields.get("source")
    if template is None and source is None:
        return draft
    there: Mapping[str, str | bytes] = step.files if template is None else step.templates
    key, folder = ("source", "files") if template is None else ("template", "templates")
    name, place = str(source if template is None else template), (*draft.path, key)
    if name not in there:
        problems.append(step.resources.problem(place, f"there is no {folder}/{name}", nearest(name, sorted(there))))
        return draft
    try:
        data = step.files[name] if template is None else render_text(step.templates[name], seen).encode()
    except TemplateError as error:
        problems.append(step.resources.problem(place, f"templates/{name}: {error}", _hint(error)))
        return draft
    if template is not None:
        name = _bundled_name(name.removesuffix(".j2"), data, one_of_many="item" in seen)
    bundled = f"files/{step.name}/{name}"
    if texts.setdefault(bundled, data) != data:
        message = f"another text of this step is bundled as {bundled}"
        problems.append(step.resources.problem(place, message, "rename one of the two"))
    return dataclasses.replace(draft, fields={**fields, "source": bundled, "sha256": hashlib.sha256(data).hexdigest()})


def _bundled_name(name: str, data: bytes, *, one_of_many: bool) -> str:
    """A template's own name; where `each` makes many texts of it, one for each text, whatever their order."""
    if not one_of_many:
        return name
    path = PurePosixPath(name)
    return f"{path.stem}-{hashlib.sha256(data).hexdigest()[:16]}{path.suffix}"
