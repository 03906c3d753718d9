"""Parses the event lines of the guest (docs/guest.md) into typed events. Pure."""

import dataclasses
import json
from typing import Final, Literal, TypeAlias, get_args

MARK: Final = "imagegen:"
_LONGEST: Final = 1000

PhaseStatus: TypeAlias = Literal["started", "finished", "failed"]
ArtifactStatus: TypeAlias = Literal["fetching", "ready"]
ResourceStatus: TypeAlias = Literal["ok", "changed", "failed", "drifted", "skipped"]


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
    """The download of an artifact began, or the artifact is downloaded and verified."""

    name: str
    status: ArtifactStatus
    size: int


@dataclasses.dataclass(frozen=True)
class ResourceEvent:
    """A resource was tested or set."""

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
    """The machine has written its report."""

    path: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class BrokenEvent:
    """A line that looks like an event but is not a valid one: guest and host disagree on the format."""

    text: str
    why: str


GuestEvent: TypeAlias = PhaseEvent | ArtifactEvent | ResourceEvent | ReportEvent | BrokenEvent

_EVENTS: Final[dict[str, type[PhaseEvent | ArtifactEvent | ResourceEvent | ReportEvent]]] = {
    "phase": PhaseEvent,
    "artifact": ArtifactEvent,
    "resource": ResourceEvent,
    "report": ReportEvent,
}


def parse_event(line: str) -> GuestEvent | None:
    """The event on a line without Packer's prefix; None for other text."""
    if not line.startswith(MARK):
        return None
    text = line.removeprefix(MARK).strip()
    if not text.isascii() or len(text) > _LONGEST:
        return BrokenEvent(text[:_LONGEST], f"an event must be ASCII and have at most {_LONGEST} characters")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as fault:
        return BrokenEvent(text, f"invalid JSON: {fault.msg}")
    if not isinstance(data, dict):
        return BrokenEvent(text, "not a JSON object")
    name = data.pop("event", None)
    if not isinstance(name, str) or name not in _EVENTS:
        return BrokenEvent(text, f"unknown event: {name}")
    event = _EVENTS[name]
    why = _find_fault(event, data)
    return BrokenEvent(text, why) if why else event(**data)


def _find_fault(event: type, data: dict[str, object]) -> str:
    fields = {field.name: field.type for field in dataclasses.fields(event)}
    if fields.keys() != data.keys():
        return f"its fields must be {', '.join(sorted(fields))}, not {', '.join(sorted(data))}"
    for name, wanted in fields.items():
        value = data[name]
        if choices := get_args(wanted):
            if value not in choices:
                return f"{name} must be one of {', '.join(choices)}, not {value!r}"
        elif type(value) is not wanted or (isinstance(value, int) and value < 0):
            return f"{name} must be of type {getattr(wanted, '__name__', wanted)}, not {value!r}"
    return ""
