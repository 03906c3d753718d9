"""Reads Packer's output during one build: logs it, passes progress on, and keeps what the result needs."""

import collections
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from imagegen.build.events import ArtifactEvent, BrokenEvent, PhaseEvent, ReportEvent, ResourceEvent, parse_event
from imagegen.build.failure import build_failure
from imagegen.build.log import BuildLog, output_text, record_text
from imagegen.build.packer_output import OutputLine, Record, plain, read_line
from imagegen.build.progress import Display
from imagegen.build.scrub import scrub
from imagegen.errors import BuildError

_KEPT_LINES: Final = 40
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
        self._secrets = secrets
        self._on_question = on_question
        self._traces = re.compile(traces)
        self._traced: dict[str, None] = {}
        self._tail: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._errors: list[str] = []
        self._ids: list[str] = []
        self._summary = ""
        self.culprit: ResourceEvent | PhaseEvent | None = None
        self._cancelled_cleanly = False
        self.aborted = False
        """Whether Packer cleaned nothing up, because the user told it so."""
        self._cleaning_up = False
        self._summary_began = False

    def add_line(self, line: str) -> None:
        """Read a line of standard output."""
        match read_line(line):
            case Record() as record:
                self._add_record(dataclasses.replace(record, data=tuple(map(self._scrub, record.data))))
            case lines:
                for output in lines:
                    self._read_output(output)

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
    def traced(self) -> tuple[str, ...]:
        """The names of what Packer made in the account, as its output has them, in order."""
        return tuple(self._traced)

    @property
    def artifact(self) -> str:
        """The id of the builder's artifact or, where Packer's output is not machine-readable, the text about it.

        Both contain the cloud's id of the image. Artifacts of post-processors come after it. Empty without an artifact.
        """
        return self._ids[0] if self._ids else self._summary

    def failure(self, log: Path, why: str = "", hint: str = "") -> BuildError:
        """The error for a build that failed."""
        errors = [*([why] if why else []), *self._errors]
        return build_failure(
            culprit=self.culprit, errors=errors[:_SHOWN_ERRORS], tail=tuple(self._tail), log=log, hint=hint
        )

    def _add_record(self, record: Record) -> None:
        self._log.write(record_text(record))
        if record.type == "error" and record.data:
            self._errors.append(" ".join(plain(record.data[0]).split()))
        elif record.type == "artifact" and record.data[1:2] == ("id",):
            self._ids += record.data[2:3]

    def _read_output(self, output: OutputLine) -> None:
        # Scrubbed after parsing: hiding a secret before could break the JSON around it.
        event = parse_event(output.text.strip()) if output.target else None
        output = dataclasses.replace(output, text=self._scrub(output.text))
        self._log.write(output_text(output))
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
        self._traced |= dict.fromkeys(self._traces.findall(output.text))
        if not output.target and output.error and output.text.startswith("Error: "):
            self._errors.append(output.text.removeprefix("Error: "))
        self._add_summary(output)
        self._display.show_output(output)
        if self._on_question is not None and (failed := _FAILED_STEP.fullmatch(output.text)):
            self._on_question(failed["step"])

    def _add_summary(self, output: OutputLine) -> None:
        """Read the summary at the end: without -machine-readable it is the only place that names the artifact."""
        if not output.target and output.text.startswith(_ARTIFACTS):
            self._summary_began = True
        elif self._summary_began and not output.target:
            self._summary += f"{output.text}\n"
        elif self._on_question is not None and (summary := _SUMMARY.fullmatch(output.text)):
            self._errors.append(summary["text"])

    def _scrub(self, text: str) -> str:
        return scrub(text, self._secrets)
