"""Draws the progress of a build on a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from imagegen.base.console import Console, seconds
from imagegen.base.lines import one_line, shown_size
from imagegen.build.events import ArtifactEvent, BrokenEvent, GuestEvent, PhaseEvent, ReportEvent, ResourceEvent
from imagegen.build.progress import LineDisplay, duration

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
