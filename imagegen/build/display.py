"""Shows the progress of a build: prints a line for each event and Packer step, or draws on a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from imagegen.base.console import Console, seconds
from imagegen.base.lines import counted, one_line, shown_size
from imagegen.build.events import ArtifactEvent, BrokenEvent, GuestEvent, PhaseEvent, ReportEvent, ResourceEvent
from imagegen.build.output import OutputLine

# Packer prints these once per tag and per attribute. They are only logged.
_NOISE = ("Adding tag: ", "-> ", "Setting a ")


class Display(Protocol):
    """Where a run of Packer reports its progress."""

    def show_event(self, event: GuestEvent) -> None:
        """Show an event of the guest."""

    def show_output(self, output: OutputLine) -> None:
        """Show a line of Packer, of a builder or of a program on the guest."""

    def warn(self, text: str) -> None:
        """Show a warning."""


@contextlib.contextmanager
def show_build(console: Console, target: str) -> Iterator[Display]:
    """The display for one target: drawn on a terminal, lines elsewhere."""
    if console.plain or console.quiet:
        yield LineDisplay(console, target)
        return
    with draw_build(console, target) as display:
        yield display


class LineDisplay:
    """Prints a line for each phase, each resource that was not ok, and each of Packer's steps."""

    def __init__(self, console: Console, target: str) -> None:
        self._console = console
        self._target = target
        self._in_phase = False
        self._last_step = ""

    def show_event(self, event: GuestEvent) -> None:
        if isinstance(event, PhaseEvent):
            self._in_phase = event.status == "started"
        self._add_event(event)

    def show_output(self, output: OutputLine) -> None:
        # The guest's output looks like Packer's own steps, but comes only within phases.
        step = output.text.strip()
        if step and output.target and not self._in_phase and step != self._last_step and not step.startswith(_NOISE):
            self._last_step = step
            self._add_step(step)

    def warn(self, text: str) -> None:
        self._console.warn(f"{self._target}  {text}")

    def _add_event(self, event: GuestEvent) -> None:
        text = describe(event)
        if isinstance(event, BrokenEvent):
            self.warn(text)
        elif text:
            self._console.say(f"{self._target}  {text}")

    def _add_step(self, step: str) -> None:
        self._console.say(f"{self._target}  packer  {step}")


def describe(event: GuestEvent) -> str:
    """An event as one line. Empty for a resource that was ok: the end of the phase has the count."""
    match event:
        case PhaseEvent(status="started"):
            return f"{event.phase}  {counted(event.resources, 'resource')}"
        case PhaseEvent(status="finished"):
            restart = ", restart needed" if event.restart else ""
            counts = f"{event.changed} changed, {event.resources - event.changed} ok"
            return f"{event.phase}  finished: {counts}{restart}  {duration(event.ms)}"
        case PhaseEvent():
            return f"{event.phase}  failed: {event.reason}  {duration(event.ms)}"
        case ArtifactEvent(status="fetching"):
            return f"fetching {event.name} ({shown_size(event.size)})"
        case ArtifactEvent():
            return ""
        case ResourceEvent(status="ok"):
            return ""
        case ResourceEvent():
            reason = f": {event.reason}" if event.reason and event.status != "changed" else ""
            return f"{event.phase}  {event.status} {event.id}{reason}  {duration(event.ms)}"
        case ReportEvent():
            return "the machine wrote its report"
        case BrokenEvent():
            return f"the guest sent an invalid event ({event.why}): {event.text}"


def duration(ms: int) -> str:
    """Milliseconds as text."""
    return seconds(ms / 1000)


_BAD = frozenset({"failed", "drifted"})


@contextlib.contextmanager
def draw_build(console: Console, target: str) -> Iterator[LiveDisplay]:
    """Draw until the build ends. Its phases stay on the terminal."""
    display = LiveDisplay(console, target)
    try:
        with Live(console=console.terminal, get_renderable=display.drawing, refresh_per_second=4, transient=True):
            yield display
    finally:
        for line in display.summary():
            console.say(line)


@dataclasses.dataclass
class _Phase:
    """The state of a phase in the drawing. It is changed in place, under the display's lock."""

    name: str
    resources: int
    done: int = 0
    changed: int = 0
    bad: int = 0
    status: str = "started"
    ms: int = 0
    restart: bool = False
    began: float = dataclasses.field(default_factory=time.monotonic)


class LiveDisplay(LineDisplay):
    """Draws phases with their counts, the current step and the time. Failures and warnings stay above the drawing."""

    def __init__(self, console: Console, target: str) -> None:
        super().__init__(console, target)
        self._phases: dict[str, _Phase] = {}
        self._current = "starting Packer"
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def _add_event(self, event: GuestEvent) -> None:
        with self._lock:
            self._update(event)
        if isinstance(event, BrokenEvent) or (isinstance(event, PhaseEvent | ResourceEvent) and event.status in _BAD):
            super()._add_event(event)

    def _add_step(self, step: str) -> None:
        with self._lock:
            self._current = f"packer: {step}"

    def drawing(self) -> RenderableType:
        """The drawing. Each row is cut to the terminal's width."""
        with self._lock:
            rows = [self._row(phase) for phase in self._phases.values()]
            took = seconds(time.monotonic() - self._began)
            rows.append(Text(one_line(f"{self._target}  {took}  {self._current}"), style="dim"))
        for row in rows:
            row.no_wrap = True
            row.overflow = "ellipsis"
        return Group(*rows)

    def summary(self) -> list[str]:
        """The lines that stay on the terminal after the drawing."""
        with self._lock:
            return [f"{self._target}  {_phase_text(phase)}" for phase in self._phases.values()]

    def _update(self, event: GuestEvent) -> None:
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
                self._current = f"{event.status} {event.name} ({shown_size(event.size)})"
            case ResourceEvent() | ReportEvent() | BrokenEvent():
                pass

    def _row(self, phase: _Phase) -> Text:
        mark, style = {"started": ("…", "cyan"), "finished": ("✓", "green"), "failed": ("✗", "red")}[phase.status]
        return Text.assemble((f"{mark} ", style), one_line(f"{self._target}  {_phase_text(phase)}"))


def _phase_text(phase: _Phase) -> str:
    took = duration(phase.ms) if phase.status != "started" else seconds(time.monotonic() - phase.began)
    bad = f", {phase.bad} failed" if phase.bad else ""
    restart = ", restart needed" if phase.restart else ""
    done = f"{phase.done}/{phase.resources}" if phase.status == "started" else phase.status
    return f"{phase.name}  {done}, {phase.changed} changed{bad}{restart}  {took}"
