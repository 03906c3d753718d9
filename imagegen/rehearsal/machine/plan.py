"""Parses plan.json as the engine reads it: typed phases, steps and resources. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, Literal

import pydantic

from imagegen.rehearsal.machine.refusal import Exit, StopError
from imagegen.steps.kinds import KINDS, PLANNED_KINDS, File, Script, Update
from imagegen.steps.resource import Name, Sha256, Strict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.steps.resource import Resource


HOME: Final = r"C:\ProgramData\imagegen"
UNPACKED: Final = rf"{HOME}\bundle"
PLAN: Final = "plan.json"


class Windows(Strict):
    """The Windows that the plan is for."""

    release: str
    build: int


class PlannedEffect(Strict):
    """What must be so after a script ran."""

    kind: str
    label: str
    fields: dict[str, Any]


class Entry(Strict):
    """One resource as it stands in the plan."""

    id: str
    kind: str
    fields: dict[str, Any]
    until: Literal["first-boot"] | None
    effects: list[PlannedEffect]


class Step(Strict):
    """The resources of a step. If `repeated`, a later round has the same resources."""

    name: str
    repeated: bool
    summary: str
    timeout_s: int
    resources: list[Entry]


class Phase(Strict):
    """Steps between two restarts."""

    name: str
    restart: bool
    timeout_s: int
    steps: list[Step]


class Artifact(Strict):
    """The URL of an artifact, and the digest and size of its bytes."""

    url: str
    sha256: Sha256
    size: int


class Proxy(Strict):
    """The proxy for downloads; `bypass` are the expressions of its exceptions."""

    url: str
    bypass: list[str]


class Signature(Strict):
    """The signature by which the host accepted a file, and the roots of it and its timestamp. If `hidden` has a reason,
    Windows does not show it."""

    signer: str
    thumbprint: Sha256
    root: str
    root_thumbprint: Sha256
    timestamp_root: str | None
    timestamp_root_thumbprint: Sha256 | None
    hidden: Literal["nested", "catalogue"] | None


class Plan(Strict):
    """The whole plan."""

    plan_version: Literal[1]
    name: str
    target: str
    windows: Windows
    phases: list[Phase]
    artifacts: dict[Name, Artifact]
    files: dict[str, Sha256]
    proxy: Proxy | None
    signatures: dict[Sha256, Signature | None]


@dataclasses.dataclass(frozen=True)
class Item:
    """A resource and its place in the plan."""

    phase: str
    step: str
    repeated: bool
    timeout_s: int
    id: str
    kind: str
    resource: Resource
    until: str | None
    effects: tuple[PlannedEffect, ...] = ()

    def failure(self, reason: str) -> str:
        """The message of a failure, with step and resource."""
        return f"step {self.step}, resource {self.id}: {reason}"


def read_plan(data: bytes) -> Plan:
    """A plan that cannot be read is a fault of imagegen, because its bytes have the pinned digest."""
    try:
        return Plan.model_validate_json(data)
    except pydantic.ValidationError as error:
        raise StopError(Exit.FAULT, f"plan.json cannot be read: {error}") from error


def items_of(plan: Plan) -> tuple[Item, ...]:
    """All resources in order."""
    items = tuple(_items(plan))
    ids = [item.id for item in items]
    twice = {text for text in ids if ids.count(text) > 1}
    if twice:
        raise StopError(Exit.FAULT, f"the plan holds twice what it may hold once: {', '.join(sorted(twice))}")
    return items


def _items(plan: Plan) -> Iterator[Item]:
    for phase in plan.phases:
        for step in phase.steps:
            for entry in step.resources:
                yield Item(
                    phase=phase.name,
                    step=step.name,
                    repeated=step.repeated,
                    timeout_s=step.timeout_s,
                    id=entry.id,
                    kind=entry.kind,
                    resource=_resource(plan, step, entry),
                    until=entry.until,
                    effects=tuple(entry.effects),
                )


def _resource(plan: Plan, step: Step, entry: Entry) -> Resource:
    if entry.kind not in PLANNED_KINDS:
        raise StopError(Exit.FAULT, f"{entry.id}: there is no kind {entry.kind}")
    try:
        resource = KINDS[entry.kind].model_validate(entry.fields)
    except pydantic.ValidationError as error:
        raise StopError(Exit.FAULT, f"{entry.id}: its fields are not those of {entry.kind}: {error}") from error
    if not _is_named_after(entry, step):
        raise StopError(Exit.FAULT, f"{entry.id} is not named after step {step.name} and kind {entry.kind}")
    if resource.artifact_name is not None and resource.artifact_name not in plan.artifacts:
        raise StopError(Exit.FAULT, f"{entry.id}: the plan has no artifact {resource.artifact_name}")
    bundled = resource.source if isinstance(resource, (File, Script, Update)) else None
    if bundled is not None and bundled not in plan.files:
        raise StopError(Exit.FAULT, f"{entry.id}: the plan has no file {bundled}")
    return resource


def _is_named_after(entry: Entry, step: Step) -> bool:
    """The name has the kind as the step has it, which a plan may have as another kind."""
    name, _, rest = entry.id.partition("/")
    kind = rest.partition(":")[0]
    return name == step.name and (kind == entry.kind or kind in KINDS.keys() - PLANNED_KINDS)
