"""Reads Packer's output during one build: logs it, passes progress on, and keeps what the result needs."""

import collections
import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from imagegen.build.events import ArtifactEvent, BrokenEvent, PhaseEvent, ReportEvent, ResourceEvent, parse_event
from imagegen.build.packer_output import BuildLog, OutputLine, Record, plain, read_line, scrub
from imagegen.build.progress import Display
from imagegen.errors import BuildError

_SHOWN_LINES: Final = 15
_SHOWN_ERRORS: Final = 5
# At its end Packer repeats its errors. These lines would push the cause out of the lines that are kept.
_EPILOGUE: Final = ("==> ", "--> ")
_CANCELLED_CLEANLY: Final = "Cleanly cancelled builds"
# Lines after this one are about clean-up: the reason for a failure stands before it.
_CLEANING_UP: Final = "Provisioning step had errors"
# Packer prints one of these when it cleans nothing up, after a failure or an interrupt.
_ABORTED = re.compile(
    r'Step "\w+" failed, aborting\.\.\.|Interrupted, aborting\.\.\.|aborted: skipping cleanup of step '
)
# The line before Packer's question: the question itself has no line of its own.
_FAILED_STEP = re.compile(r'Step "(?P<step>\w+)" failed')
_ARTIFACTS: Final = "==> Builds finished. The artifacts of successful builds are:"
_SUMMARY = re.compile(r"--> [A-Za-z0-9_.-]+: (?P<text>.*)")
# What PACKER_LOG=1 makes Packer and its plugins write to standard error.
_DEBUG_LINE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d ")


class BuildOutput:
    """Reads the lines of one build: logs them, passes progress to the display, and keeps what the result needs."""

    def __init__(
        self,
        log: BuildLog,
        display: Display,
        secrets: tuple[str, ...],
        traces: str,
        on_question: Callable[[str], None] | None = None,
    ) -> None:
        self._log = log
        self._display = display
        self._scrub = functools.partial(scrub, secrets=secrets)
        self._on_question = on_question
        self._traces = re.compile(traces)
        self.traced: dict[str, None] = {}
        """The names of what Packer made in the account, as its output has them, in order."""
        self._tail: collections.deque[str] = collections.deque(maxlen=_SHOWN_LINES)
        self._errors: list[str] = []
        self._ids: list[str] = []
        self._summary: str | None = None
        self.culprit: ResourceEvent | PhaseEvent | None = None
        self._cancelled_cleanly = False
        self.aborted = False
        """Whether Packer cleaned nothing up, because the user told it so."""
        self._cleaning_up = False

    def add_line(self, line: str) -> None:
        """Read a line of standard output."""
        for part in read_line(line):
            if isinstance(part, Record):
                self._add_record(dataclasses.replace(part, data=tuple(map(self._scrub, part.data))))
            else:
                self._read_output(part)

    def add_error_line(self, line: str) -> None:
        """Read a line of standard error: Packer's debug log, or its error where it cannot start."""
        if _DEBUG_LINE.match(line):
            self._log.write(self._scrub(line))
        else:
            self.add_line(line)

    @property
    def cleaned_up(self) -> bool:
        """Whether Packer cleaned up after an interrupt."""
        return self._cancelled_cleanly and not self.aborted

    @property
    def artifact(self) -> str:
        """The id of the builder's artifact or, where Packer's output is not machine-readable, the text about it.

        Both contain the cloud's id of the image. Artifacts of post-processors come after it. Empty without an artifact.
        """
        return self._ids[0] if self._ids else self._summary or ""

    def failure(self, log: Path, why: str = "", hint: str = "") -> BuildError:
        """The error names the resource or phase that failed, or Packer's own error; then the last lines and the log."""
        errors = [*([why] if why else []), *self._errors][:_SHOWN_ERRORS]
        details = []
        match self.culprit:
            case ResourceEvent() as culprit:
                message = f"{culprit.id} failed in {culprit.phase}: {culprit.reason}"
                details.append(f"step {culprit.step}: ansible-win/roles/{culprit.step}/resources.yml")
            case PhaseEvent() as culprit:
                message = f"{culprit.phase} failed: {culprit.reason}"
            case _:
                message = f"Packer failed: {errors.pop(0)}" if errors else "Packer failed without an error message"
        details += [f"Packer: {error}" for error in errors]
        if self._tail:
            details += ["the last lines:", *(f"  {line}" for line in self._tail)]
        return BuildError(message, details=[*details, f"the full log: {log}"], hint=hint)

    def _add_record(self, record: Record) -> None:
        self._log.write(record.logged)
        if record.type == "error" and record.data:
            self._errors.append(" ".join(plain(record.data[0]).split()))
        elif record.type == "artifact" and record.data[1:2] == ("id",):
            self._ids += record.data[2:3]

    def _read_output(self, output: OutputLine) -> None:
        # Scrubbed after parsing: hiding a secret before could break the JSON around it.
        event = parse_event(output.text.strip()) if output.target else None
        output = dataclasses.replace(output, text=self._scrub(output.text))
        self._log.write(output.logged)
        match event:
            case None:
                self._add_text(output)
                return
            case BrokenEvent():
                event = dataclasses.replace(event, text=self._scrub(event.text), why=self._scrub(event.why))
                self._tail.append(f"{event.why}: {event.text}")
            case ResourceEvent() | PhaseEvent():
                event = dataclasses.replace(event, reason=self._scrub(event.reason))
                self._find_culprit(event)
            case ArtifactEvent() | ReportEvent():
                pass
        self._display.show_event(event)

    def _find_culprit(self, event: ResourceEvent | PhaseEvent) -> None:
        if isinstance(event, PhaseEvent) and event.status == "finished":
            self.culprit = None  # Packer ran the provisioner again, and now it succeeded
        elif event.status == "failed" and not isinstance(self.culprit, ResourceEvent):
            # A resource is more precise than its phase, which fails after it.
            self.culprit = event

    def _add_text(self, output: OutputLine) -> None:
        self._cleaning_up = self._cleaning_up or output.text.startswith(_CLEANING_UP)
        if not self._cleaning_up and output.text.strip() and (output.target or not output.text.startswith(_EPILOGUE)):
            self._tail.append(output.text.rstrip())
        self._cancelled_cleanly = self._cancelled_cleanly or output.text.startswith(_CANCELLED_CLEANLY)
        self.aborted = self.aborted or bool(_ABORTED.match(output.text))
        self.traced |= dict.fromkeys(self._traces.findall(output.text))
        if not output.target and output.error and output.text.startswith("Error: "):
            self._errors.append(output.text.removeprefix("Error: "))
        if not output.target and output.text.startswith(_ARTIFACTS):
            # Without -machine-readable this summary is the only place that names the artifact.
            self._summary = ""
        elif self._summary is not None and not output.target:
            self._summary += f"{output.text}\n"
        elif self._on_question is not None and (summary := _SUMMARY.fullmatch(output.text)):
            self._errors.append(summary["text"])
        self._display.show_output(output)
        if self._on_question is not None and (failed := _FAILED_STEP.fullmatch(output.text)):
            self._on_question(failed["step"])
