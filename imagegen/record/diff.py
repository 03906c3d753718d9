"""Tells two values of JSON apart, path by path, and two images, by their plans or manifests. Pure.

A plan has the planned values of each resource, and a manifest what the machine reported about it. A plan and a manifest
are compared only in which resources they have.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import pydantic

from imagegen.base.errors import ConfigError, Problem
from imagegen.fetch.request import shown_url
from imagegen.record.manifest import ImageManifest
from imagegen.record.reading import shown
from imagegen.steps.release_record import RESOURCE

_SHOWN_PROBLEMS: Final = 10


def differences(found: object, expected: object, *, place: str, source: str, hint: str) -> Iterator[Problem]:
    """A problem for each value of `found` that is not the expected one. `source` says it: "the manifest"."""
    was, wanted = dict(flatten(found)), dict(flatten(expected))
    was, wanted = _without_parents(was, wanted), _without_parents(wanted, was)
    for name in sorted(was.keys() | wanted.keys()):
        if name not in wanted:
            yield Problem(place, 0, name, f"is {shown(was[name])}, but {source} has no such value", hint)
        elif name not in was:
            yield Problem(place, 0, name, f"is missing, but {source} says {shown(wanted[name])}", hint)
        # As JSON, where true is not 1.
        elif json.dumps(was[name]) != json.dumps(wanted[name]):
            message = f"is {shown(was[name])}, but {source} says {shown(wanted[name])}"
            yield Problem(place, 0, name, message, hint)


def _without_parents(values: Mapping[str, object], others: Iterable[str]) -> dict[str, object]:
    """The values without the empty maps and lists that have entries among the others: those are told one by one."""
    parents = {"", *(name[: part.start()] for name in others for part in re.finditer(r"[.\[]", name))}
    return {name: value for name, value in values.items() if value not in ({}, []) or name not in parents}


def first_problems(problems: Iterable[Problem]) -> list[Problem]:
    """The first problems. The last of them says how many more there are."""
    listed = list(problems)
    first = listed[:_SHOWN_PROBLEMS]
    if more := len(listed) - len(first):
        first[-1] = dataclasses.replace(first[-1], message=f"{first[-1].message}, and {more} more")
    return first


def flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each single value with its path. An entry of a list has its name or path in it, if it has one: then its place in
    the list does not matter."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        seen: collections.Counter[str] = collections.Counter()
        for index, item in enumerate(value):
            named = item.get("path", item.get("name", index)) if isinstance(item, Mapping) else index
            seen[str(named)] += 1
            again = f" ({seen[str(named)]})" if seen[str(named)] > 1 else ""
            yield from flatten(item, f"{path}[{named}{again}]")
    else:
        yield path, value


_SHOWN_CHANGES: Final = 5
_LONGEST: Final = 60


@dataclasses.dataclass(frozen=True)
class Resource:
    """A resource of an image. `values` has a dotted name for each value, also of lists and sections."""

    step: str
    kind: str
    label: str
    values: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two images."""

    title: str
    image_id: str
    source: Literal["plan", "manifest"]
    base: Mapping[str, str]
    versions: Mapping[str, str]
    artifacts: Mapping[str, Mapping[str, str]]
    resources: Mapping[str, Resource]


@dataclasses.dataclass(frozen=True)
class Change:
    """A value of one image that the other does not have, or has another. None: it has no such value."""

    name: str
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True)
class ResourceChange:
    """A resource that only one image has, or that differs."""

    step: str
    kind: str
    label: str
    change: Literal["added", "removed", "changed"]
    values: tuple[Change, ...]


@dataclasses.dataclass(frozen=True)
class Differences:
    """Everything in which two images differ."""

    before: str
    after: str
    image_ids: tuple[str, str]
    compares_values: bool
    """Whether the values of resources were compared, and not only which resources there are."""
    base: tuple[Change, ...]
    versions: tuple[Change, ...]
    artifacts: tuple[Change, ...]
    resources: tuple[ResourceChange, ...]

    @property
    def same(self) -> bool:
        return self.image_ids[0] == self.image_ids[1]

    def as_json(self) -> dict[str, object]:
        return {"same": self.same, **dataclasses.asdict(self)}


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="ignore", frozen=True)


class _Resource(_Part):
    id: Annotated[str, pydantic.StringConstraints(pattern=r"(?s)^[^:/]+/[^:]+:.")]
    kind: str
    fields: dict[str, Any]


class _Step(_Part):
    name: str
    resources: list[_Resource]


class _Phase(_Part):
    steps: list[_Step]


class _Artifact(_Part):
    sha256: str


class _Image(_Part):
    base: dict[str, str]
    versions: dict[str, str]
    windows: dict[str, str | int | None]
    phases: list[_Phase]
    artifacts: dict[str, _Artifact]


class _Build(_Part):
    name: str
    target: str
    downloads: dict[str, str]


class _Plan(_Part):
    """What `imagegen plan --format json` printed, as far as it is compared."""

    image_id: str
    image: _Image
    build: _Build


def read_plan(data: object, shown_as: str) -> Side:
    """The image of a plan."""
    try:
        plan = _Plan.model_validate(data)
    except pydantic.ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(
            f"{shown_as} is neither a plan nor a manifest: {place} is missing or has another type",
            hint="give a config, the output of `imagegen plan --format json`, or a file of the folder `manifests`",
        ) from None
    steps = [step for phase in plan.image.phases for step in phase.steps]
    windows = {f"windows {name}": str(value) for name, value in plan.image.windows.items()}
    return Side(
        title=f"{plan.build.name} for {plan.build.target}",
        image_id=plan.image_id,
        source="plan",
        base=plan.image.base,
        versions={**windows, **plan.image.versions},
        artifacts={
            name: {"sha256": one.sha256, "url": shown_url(plan.build.downloads.get(name, ""))}
            for name, one in plan.image.artifacts.items()
        },
        resources={one.id: _resource(step.name, one.id, one.fields) for step in steps for one in step.resources},
    )


def read_manifest(manifest: ImageManifest) -> Side:
    """The image of a manifest."""
    reported: Any = (manifest.report or {}).get("resources", [])
    return Side(
        title=f"{manifest.name} for {manifest.target}",
        image_id=manifest.image_id,
        source="manifest",
        base=manifest.inputs.base.identity,
        versions=manifest.versions,
        artifacts={name: {"sha256": one.sha256, "url": one.url} for name, one in manifest.inputs.artifacts.items()},
        # The release record has the image's identity: its digest differs between any two images.
        resources={
            one["id"]: _resource(one["step"], one["id"], {} if one["id"] == RESOURCE else one["facts"])
            for one in reported
        },
    )


def _resource(step: str, identifier: str, values: object) -> Resource:
    kind, _, label = identifier.partition("/")[2].partition(":")
    return Resource(step, kind, label, dict(_text_values(values)))


def _text_values(values: object) -> Iterator[tuple[str, str]]:
    for name, value in flatten(values):
        if value is not None and value not in ([], {}):
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


def compare(before: Side, after: Side) -> Differences:
    """In what the second image differs from the first."""
    compares_values = before.source == after.source
    # A manifest has no facts about Windows itself: its base image has them.
    names = None if compares_values else before.versions.keys() & after.versions.keys()
    return Differences(
        before=before.title,
        after=after.title,
        image_ids=(before.image_id, after.image_id),
        compares_values=compares_values,
        base=_changes(before.base, after.base),
        versions=_changes(_only(before.versions, names), _only(after.versions, names)),
        artifacts=_changes(_described(before.artifacts), _described(after.artifacts)),
        resources=tuple(_resource_changes(before.resources, after.resources, compares_values=compares_values)),
    )


def _only(values: Mapping[str, str], names: set[str] | None) -> Mapping[str, str]:
    return values if names is None else {name: value for name, value in values.items() if name in names}


def _described(artifacts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {name: f"{one['url']} (sha256 {one['sha256']})" for name, one in artifacts.items()}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    names = dict.fromkeys([*before, *after])
    return tuple(
        Change(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    )


def _resource_changes(
    before: Mapping[str, Resource], after: Mapping[str, Resource], *, compares_values: bool
) -> Iterator[ResourceChange]:
    """Step by step, in the order of the second image, and then what only the first has."""
    for name in dict.fromkeys([*after, *before]):
        old, new = before.get(name), after.get(name)
        found = new or before[name]
        if old is None or new is None:
            yield ResourceChange(found.step, found.kind, found.label, "added" if new else "removed", ())
        elif compares_values and (changed := _changes(old.values, new.values)):
            yield ResourceChange(found.step, found.kind, found.label, "changed", changed)


def difference_lines(found: Differences) -> Iterator[str]:
    """The differences as Markdown."""
    yield f"# {found.before} → {found.after}"
    yield ""
    if found.same:
        yield f"Both have the same image id, `{found.image_ids[0]}`: it is the same image."
        return
    yield f"Image id `{found.image_ids[0][:16]}` → `{found.image_ids[1][:16]}`"
    for title, changes in (("Versions", found.versions), ("Base image", found.base), ("Artifacts", found.artifacts)):
        if changes:
            yield from ["", f"## {title}", ""]
            yield from map(_change_line, changes)
    if found.resources:
        yield from ["", "## Resources"]
        yield from _resource_lines(found.resources)
    if not found.compares_values:
        yield from ["", "A manifest has no planned values: only which resources there are was compared."]
    elif not (found.versions or found.base or found.artifacts or found.resources):
        yield from ["", "Only scripts or files of imagegen itself differ."]


def _change_line(change: Change) -> str:
    if change.before is None:
        return f"* **{change.name}** added: {change.after}"
    if change.after is None:
        return f"* **{change.name}** removed"
    return f"* **{change.name}**: {change.before} → {change.after}"


def _resource_lines(changes: Sequence[ResourceChange]) -> Iterator[str]:
    for step in dict.fromkeys(change.step for change in changes):
        yield from ["", f"### {step}", ""]
        for change in (one for one in changes if one.step == step):
            values = "; ".join(_value_words(value) for value in change.values[:_SHOWN_CHANGES])
            more = len(change.values) - _SHOWN_CHANGES
            detail = f": {values}{f' and {more} more' if more > 0 else ''}" if values else ""
            yield f"* {change.change} {change.kind} `{change.label}`{detail}"


def _value_words(change: Change) -> str:
    name = change.name
    if name.rpartition(".")[2] == "sha256" and change.before and change.after:
        where = name.removesuffix("sha256").removesuffix(".")
        return f"{f'{where} has ' if where else ''}other content"
    if change.before is None:
        return f"{name} {_short(change.after)} added"
    if change.after is None:
        return f"{name} {_short(change.before)} removed"
    return f"{name} {_short(change.before)} → {_short(change.after)}"


def _short(text: str | None) -> str:
    shown = text or ""
    return f"`{shown if len(shown) <= _LONGEST else f'{shown[:_LONGEST]}…'}`"
