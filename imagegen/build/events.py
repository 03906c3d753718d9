"""The event lines of the guest (docs/guest.md), typed: one line in, one event out. Pure."""

from __future__ import annotations

import dataclasses
import json
from typing import Final, Literal, TypeAlias, get_args

MARK: Final = "imagegen:"
_LONGEST: Final = 1000

PhaseStatus: TypeAlias = Literal["started", "finished", "failed"]
ArtifactStatus: TypeAlias = Literal["fetching", "ready"]
ResourceStatus: TypeAlias = Literal["ok", "changed", "failed", "drifted", "would change"]


@dataclasses.dataclass(frozen=True)
class PhaseEvent:
    """A phase began or ended."""

    phase: str
    status: PhaseStatus
    resources: int
    changed: int
    restart: bool
    ms: int
    reason: str


@dataclasses.dataclass(frozen=True)
class ArtifactEvent:
    """An artifact is on its way, or there and verified."""

    name: str
    status: ArtifactStatus
    size: int


@dataclasses.dataclass(frozen=True)
class ResourceEvent:
    """A resource was judged."""

    phase: str
    id: str
    status: ResourceStatus
    ms: int
    reason: str

    @property
    def step(self) -> str:
        """The step that the resource belongs to."""
        return self.id.partition("/")[0]


@dataclasses.dataclass(frozen=True)
class ReportEvent:
    """The report lies on the machine."""

    path: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class BrokenEvent:
    """A line that claims to be an event and is none: guest and host do not agree on the contract."""

    text: str
    why: str


GuestEvent: TypeAlias = PhaseEvent | ArtifactEvent | ResourceEvent | ReportEvent | BrokenEvent

_EVENTS: Final[dict[str, type[PhaseEvent | ArtifactEvent | ResourceEvent | ReportEvent]]] = {
    "phase": PhaseEvent,
    "artifact": ArtifactEvent,
    "resource": ResourceEvent,
    "report": ReportEvent,
}
_TYPES: Final[dict[str, type]] = {"str": str, "int": int, "bool": bool}
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "PhaseStatus": get_args(PhaseStatus),
    "ArtifactStatus": get_args(ArtifactStatus),
    "ResourceStatus": get_args(ResourceStatus),
}


def parse_event(line: str) -> GuestEvent | None:
    """The event on a line without Packer's prefix; None for prose."""
    if not line.startswith(MARK):
        return None
    text = line.removeprefix(MARK).strip()
    if not text.isascii() or len(text) > _LONGEST:
        return BrokenEvent(text[:_LONGEST], f"an event is ASCII of at most {_LONGEST} characters")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as fault:
        return BrokenEvent(text, f"not JSON: {fault.msg}")
    if not isinstance(data, dict):
        return BrokenEvent(text, "not a JSON object")
    name = data.pop("event", None)
    if not isinstance(name, str) or name not in _EVENTS:
        return BrokenEvent(text, f"no such event: {name}")
    event = _EVENTS[name]
    why = _fault(event, data)
    return BrokenEvent(text, why) if why else event(**data)


def _fault(event: type, data: dict[str, object]) -> str:
    # With `from __future__ import annotations` a field's type is the name it was written with.
    fields = {field.name: str(field.type) for field in dataclasses.fields(event)}
    if fields.keys() != data.keys():
        return f"its fields are {', '.join(sorted(data))}, and should be {', '.join(sorted(fields))}"
    for name, written in fields.items():
        value = data[name]
        if written in _WORDS:
            if value not in _WORDS[written]:
                return f"{name} is {value!r}, and should be one of {', '.join(_WORDS[written])}"
        elif type(value) is not _TYPES[written] or (isinstance(value, int) and value < 0):
            return f"{name} is {value!r}, and should be of type {written}"
    return ""
