"""Shows a build while it runs: events and Packer's own steps come in, lines or a live drawing on the console go out."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from imagegen.build.events import ArtifactEvent, BrokenEvent, PhaseEvent, ReportEvent, ResourceEvent
from imagegen.console import seconds
from imagegen.lines import counted, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from imagegen.build.events import GuestEvent
    from imagegen.build.packer_output import Said
    from imagegen.console import Console

_BAD = frozenset({"failed", "drifted"})
# What Packer says once per tag and per attribute; the log has it.
_NOISE = ("Adding tag: ", "-> ", "Setting a ")


class Display(Protocol):
    """What the run of Packer tells as it goes."""

    def event(self, event: GuestEvent) -> None:
        """The guest said so."""

    def said(self, said: Said) -> None:
        """Packer, a builder or a guest's program said this."""

    def warn(self, text: str) -> None:
        """Something that must be read."""


@contextlib.contextmanager
def show_build(console: Console, target: str, *, drawn: bool = True) -> Iterator[Display]:
    """The display for one target: drawn on a terminal, lines elsewhere."""
    if console.plain or console.quiet or not drawn:
        yield LineDisplay(console, target)
        return
    display = LiveDisplay(console, target)
    try:
        with Live(console=console.terminal, get_renderable=display.drawing, refresh_per_second=4, transient=True):
            yield display
    finally:
        for line in display.summary():
            console.say(line)


class _Prose:
    """Tells Packer's own steps from the guest's prose: both look alike, but only Packer speaks between phases."""

    def __init__(self) -> None:
        self._in_phase = False
        self._last = ""

    def event(self, event: GuestEvent) -> None:
        if isinstance(event, PhaseEvent):
            self._in_phase = event.status == "started"

    def step(self, said: Said) -> str:
        """The step that Packer is at, when this is a new one."""
        text = said.text.strip()
        if self._in_phase or not said.target or not text or text == self._last or text.startswith(_NOISE):
            return ""
        self._last = text
        return text


class LineDisplay:
    """A line for each phase, each resource that was not simply in order, and each of Packer's steps."""

    def __init__(self, console: Console, target: str) -> None:
        self._console = console
        self._target = target
        self._prose = _Prose()

    def event(self, event: GuestEvent) -> None:
        self._prose.event(event)
        text = describe(event)
        if isinstance(event, BrokenEvent):
            self.warn(text)
        elif text:
            self._console.say(f"{self._target}  {text}")

    def said(self, said: Said) -> None:
        step = self._prose.step(said)
        if step:
            self._console.say(f"{self._target}  packer  {step}")

    def warn(self, text: str) -> None:
        self._console.warn(f"{self._target}  {text}")


def describe(event: GuestEvent) -> str:
    """An event as one line; empty for a resource that was in order, which the phase's end counts."""
    match event:
        case PhaseEvent(status="started"):
            return f"{event.phase}  {counted(event.resources, 'resource')}"
        case PhaseEvent(status="finished"):
            restart = ", restart due" if event.restart else ""
            return f"{event.phase}  finished: {_counts(event)}{restart}  {_took(event.ms)}"
        case PhaseEvent():
            return f"{event.phase}  failed: {event.reason}  {_took(event.ms)}"
        case ArtifactEvent(status="fetching"):
            return f"fetching {event.name} ({size(event.size)})"
        case ArtifactEvent():
            return ""
        case ResourceEvent(status="ok"):
            return ""
        case ResourceEvent():
            reason = f": {event.reason}" if event.reason and event.status != "changed" else ""
            return f"{event.phase}  {event.status} {event.id}{reason}  {_took(event.ms)}"
        case ReportEvent():
            return "the machine wrote its report"
        case BrokenEvent():
            return f"the guest sent an event that is none ({event.why}): {event.text}"


def size(count: int) -> str:
    """Bytes as people read them."""
    if count < 1_000_000:
        return f"{count / 1000:.0f} kB"
    return f"{count / 1_000_000:.1f} MB"


@dataclasses.dataclass
class _Phase:
    """What the drawing knows of a phase; the one thing here that changes in place, under the display's lock."""

    name: str
    resources: int
    done: int = 0
    changed: int = 0
    bad: int = 0
    status: str = "started"
    ms: int = 0
    restart: bool = False
    began: float = dataclasses.field(default_factory=time.monotonic)


class LiveDisplay:
    """Draws phases with their counts, what is being done, and the time; failures and warnings stay above it."""

    def __init__(self, console: Console, target: str) -> None:
        self._console = console
        self._target = target
        self._prose = _Prose()
        self._phases: dict[str, _Phase] = {}
        self._current = "starting Packer"
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def event(self, event: GuestEvent) -> None:
        self._prose.event(event)
        with self._lock:
            self._take(event)
        if isinstance(event, BrokenEvent):
            self.warn(describe(event))
        elif isinstance(event, (ResourceEvent, PhaseEvent)) and event.status in _BAD:
            self._console.say(f"{self._target}  {describe(event)}")

    def said(self, said: Said) -> None:
        step = self._prose.step(said)
        if step:
            with self._lock:
                self._current = f"packer: {step}"

    def warn(self, text: str) -> None:
        self._console.warn(f"{self._target}  {text}")

    def drawing(self) -> RenderableType:
        """The whole drawing; every row is cut to the terminal's width."""
        with self._lock:
            rows = [self._row(phase) for phase in self._phases.values()]
            took = seconds(time.monotonic() - self._began)
            rows.append(Text(one_line(f"{self._target}  {took}  {self._current}"), style="dim"))
        for row in rows:
            row.no_wrap = True
            row.overflow = "ellipsis"
        return Group(*rows)

    def summary(self) -> list[str]:
        """What stays on the terminal when the drawing is gone."""
        with self._lock:
            return [f"{self._target}  {_phase_text(phase)}" for phase in self._phases.values()]

    def _take(self, event: GuestEvent) -> None:
        match event:
            case PhaseEvent(status="started"):
                self._phases[event.phase] = _Phase(event.phase, event.resources)
                self._current = event.phase
            case PhaseEvent():
                phase = self._phases.setdefault(event.phase, _Phase(event.phase, event.resources))
                phase.status, phase.ms, phase.restart = event.status, event.ms, event.restart
                phase.changed = event.changed
                self._current = "packer"
            case ResourceEvent() if event.phase in self._phases:
                phase = self._phases[event.phase]
                phase.done += 1
                phase.changed += event.status == "changed"
                phase.bad += event.status in _BAD
                self._current = event.id
            case ArtifactEvent():
                self._current = f"{event.status} {event.name} ({size(event.size)})"
            case ResourceEvent() | ReportEvent() | BrokenEvent():
                pass

    def _row(self, phase: _Phase) -> Text:
        marks = {"started": ("…", "cyan"), "finished": ("✓", "green"), "failed": ("✗", "red")}
        mark, style = marks[phase.status]
        return Text.assemble((f"{mark} ", style), one_line(f"{self._target}  {_phase_text(phase)}"))


def _phase_text(phase: _Phase) -> str:
    took = _took(phase.ms) if phase.status != "started" else seconds(time.monotonic() - phase.began)
    bad = f", {phase.bad} failed" if phase.bad else ""
    restart = ", restart due" if phase.restart else ""
    done = f"{phase.done}/{phase.resources}" if phase.status == "started" else phase.status
    return f"{phase.name}  {done}, {phase.changed} changed{bad}{restart}  {took}"


def _counts(event: PhaseEvent) -> str:
    return f"{event.changed} changed, {event.resources - event.changed} ok"


def _took(ms: int) -> str:
    return seconds(ms / 1000)
