"""A step and what it may read in; its drafts of resources, its texts and its artifacts' addresses out. Pure.

A draft is a resource as resources.yml says it, with every template evaluated; what only the lock knows (the digests of
an artifact's bytes) is filled in by resolve."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from imagegen.artifacts.request import ArtifactRequest
from imagegen.documents.problems import nearest
from imagegen.errors import ConfigError
from imagegen.resources.kinds import KINDS
from imagegen.templating import TemplateError, UnknownNameError, evaluate, render_text, render_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.artifacts.override import Override
    from imagegen.documents.yaml import YamlPath
    from imagegen.errors import Problem
    from imagegen.steps.model import Step

_MODIFIERS = ("when", "each")


@dataclasses.dataclass(frozen=True)
class Draft:
    """One resource before the lock's digests; `path` is its place in resources.yml."""

    kind: str
    fields: dict[str, Any]
    path: YamlPath


@dataclasses.dataclass(frozen=True)
class EvaluatedStep:
    """A step for one config and target."""

    step: Step
    drafts: tuple[Draft, ...]
    texts: Mapping[str, bytes]
    requests: Mapping[str, ArtifactRequest]


def evaluate_step(step: Step, context: Mapping[str, Any], overrides: Mapping[str, Override]) -> EvaluatedStep:
    """Every problem of the step's files at once, or the step evaluated."""
    visible = _visible(step, context)
    problems: list[Problem] = []
    drafts = tuple(_drafts(step, visible, problems))
    requests = _requests(step, visible, overrides, problems)
    texts: dict[str, bytes] = {}
    finished = []
    for draft in drafts:
        if draft.kind == "file":
            draft = _with_text(step, draft, visible, texts, problems)
        finished.append(draft)
        artifact = draft.fields.get("artifact")
        if artifact is not None and artifact not in step.meta.artifacts:
            hint = nearest(str(artifact), sorted(step.meta.artifacts)) or "declare it in meta/step.yml under artifacts"
            problems.append(step.resources.problem(draft.path, f"the step has no artifact {artifact!r}", hint))
    if problems:
        raise ConfigError(f"step {step.name} cannot be used", problems=problems)
    return EvaluatedStep(step, tuple(finished), texts, requests)


def _visible(step: Step, context: Mapping[str, Any]) -> dict[str, Any]:
    """What the step's `reads` lets it see; `paths` is always there."""
    visible: dict[str, Any] = {"paths": context["paths"]}
    for index, name in enumerate(step.meta.reads):
        source: Any = context
        into: dict[str, Any] = visible
        *parents, last = name.split(".")
        try:
            for parent in parents:
                source = source[parent]
                into = into.setdefault(parent, {})
            into[last] = source[last]
        except (KeyError, TypeError):
            known = sorted(source) if isinstance(source, dict) else []
            message, hint = f"there is nothing called {name!r} to read", nearest(name.rpartition(".")[2], known)
            problem = step.described.problem(("reads", index), message, hint)
            raise ConfigError(f"step {step.name} cannot be used", problems=[problem]) from None
    return visible


def _drafts(step: Step, visible: Mapping[str, Any], problems: list[Problem]) -> Iterator[Draft]:
    entries = step.resources.data
    if not isinstance(entries, list):
        problems.append(step.resources.problem((), "must be a list of resources"))
        return
    for index, entry in enumerate(entries):
        path: YamlPath = (index,)
        kinds = [key for key in entry if key not in _MODIFIERS] if isinstance(entry, dict) else []
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


def _instances(kind: str, entry: dict[str, Any], visible: Mapping[str, Any], path: YamlPath) -> Iterator[Draft]:
    items = evaluate(str(entry["each"]), visible) if "each" in entry else [None]
    for item in items:
        context = {**visible, "item": item} if "each" in entry else visible
        if "when" in entry and not evaluate(str(entry["when"]), context):
            continue
        yield Draft(kind, render_value(entry[kind], context), path)


def _requests(
    step: Step, visible: Mapping[str, Any], overrides: Mapping[str, Override], problems: list[Problem]
) -> dict[str, ArtifactRequest]:
    requests = {}
    for name, meta in step.meta.artifacts.items():
        override = overrides.get(meta.override)
        try:
            if meta.url is not None:
                url = override.url if override else render_text(meta.url, visible)
            else:
                base = override.url if override else render_text(str(meta.base), visible)
                url = f"{base.rstrip('/')}/{render_text(str(meta.path), visible)}"
        except TemplateError as error:
            problems.append(step.described.problem(("artifacts", name), str(error), _hint(error)))
            continue
        requests[name] = ArtifactRequest(
            name=name,
            url=url,
            sha256=override.sha256 if override else None,
            archive=url.endswith((".tar.gz", ".tgz", ".zip")),
            override=meta.override,
        )
    return requests


def _hint(error: TemplateError) -> str:
    return "meta/step.yml's `reads` says what is visible" if isinstance(error, UnknownNameError) else ""


def _with_text(
    step: Step, draft: Draft, visible: Mapping[str, Any], texts: dict[str, bytes], problems: list[Problem]
) -> Draft:
    """A file resource that names a template or a static file, as one that names the bundled bytes."""
    fields = dict(draft.fields)
    template, source = fields.pop("template", None), fields.get("source")
    if template is not None:
        if template not in step.templates:
            hint = nearest(template, sorted(step.templates))
            problems.append(
                step.resources.problem((*draft.path, "template"), f"there is no templates/{template}", hint)
            )
            return draft
        try:
            data = render_text(step.templates[template], visible).encode()
        except TemplateError as error:
            message = f"templates/{template}: {error}"
            problems.append(step.resources.problem((*draft.path, "template"), message, _hint(error)))
            return draft
        name = template.removesuffix(".j2")
    elif source is not None:
        if source not in step.files:
            hint = nearest(source, sorted(step.files))
            problems.append(step.resources.problem((*draft.path, "source"), f"there is no files/{source}", hint))
            return draft
        data, name = step.files[source], source
    else:
        return draft
    bundled = f"files/{step.name}/{name}"
    texts[bundled] = data
    return Draft(draft.kind, {**fields, "source": bundled, "sha256": hashlib.sha256(data).hexdigest()}, draft.path)
