"""Shows the progress of a build: prints a line for each event and Packer step, or draws on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from imagegen.base.console import Console, seconds
from imagegen.base.lines import counted, shown_size
from imagegen.build.events import ArtifactEvent, BrokenEvent, GuestEvent, PhaseEvent, ReportEvent, ResourceEvent
from imagegen.build.packer_output import OutputLine

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
    from imagegen.build.live_display import draw_build

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
