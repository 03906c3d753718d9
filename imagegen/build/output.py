"""Takes in what Packer says during one build: keeps what the outcome needs, logs all, and hands on progress."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import TYPE_CHECKING, Final

from imagegen.build.events import ArtifactEvent, BrokenEvent, PhaseEvent, ReportEvent, ResourceEvent, parse_event
from imagegen.build.failure import build_failure
from imagegen.build.log import record_text, said_text
from imagegen.build.packer_output import Record, Said, plain, read_line
from imagegen.build.scrub import scrub

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.build.log import BuildLog
    from imagegen.build.progress import Display
    from imagegen.errors import BuildError

_KEPT_LINES: Final = 40
_SHOWN_ERRORS: Final = 5
# Packer's last words repeat its errors, and would push what led to them out of the lines that are kept.
_EPILOGUE: Final = ("==> ", "--> ")
_CANCELLED_CLEANLY: Final = "Cleanly cancelled builds"
# What Packer says after this is clean-up: the reason for a failure stands before it.
_TIDYING: Final = "Provisioning step had errors"
# How Packer says that it leaves everything as it is, after a failure and after an interrupt.
_ABORTED = re.compile(
    r'Step "\w+" failed, aborting\.\.\.|Interrupted, aborting\.\.\.|aborted: skipping cleanup of step '
)
# Where it asks: the question itself has no line of its own.
_FAILED_STEP = re.compile(r'Step "(?P<step>\w+)" failed')
_ARTIFACTS: Final = "==> Builds finished. The artifacts of successful builds are:"
_SUMMARY = re.compile(r"--> (?P<target>[A-Za-z0-9_.-]+): (?P<text>.*)")
# What PACKER_LOG=1 makes Packer and its plugins write to standard error.
_DEBUG_LINE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d ")


@dataclasses.dataclass(frozen=True)
class BuiltArtifact:
    """What a build made, in Packer's words: the plugin decides what an id looks like."""

    artifact_id: str
    builder: str
    target: str
    text: str


class Hearing:
    """Takes in the lines of one build: keeps what the outcome needs, logs all, and hands progress to the display."""

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
        self._parts: dict[tuple[str, str], dict[str, str]] = {}
        self.blame: ResourceEvent | PhaseEvent | None = None
        self._cancelled_cleanly = False
        self.aborted = False
        """Whether Packer left everything as it was, as it had been told."""
        self._tidying = False
        self._made_something = False

    def hear(self, line: str) -> None:
        """A line of standard output."""
        match read_line(line):
            case Record() as record:
                self._note(dataclasses.replace(record, data=tuple(map(self._scrubbed, record.data))))
            case said:
                for one in said:
                    self._listen(one)

    def hear_error(self, line: str) -> None:
        """A line of standard error: Packer's debug log, or what it says when it cannot even start."""
        if _DEBUG_LINE.match(line):
            self._log.write(self._scrubbed(line))
        else:
            self.hear(line)

    @property
    def cleaned_up(self) -> bool:
        """Whether Packer, when it was interrupted, cleaned up."""
        return self._cancelled_cleanly and not self.aborted

    @property
    def traced(self) -> tuple[str, ...]:
        """What Packer named of what it made in the account, in that order."""
        return tuple(self._traced)

    @property
    def artifact(self) -> BuiltArtifact | None:
        """The builder's: post-processors' come after it."""
        for (target, _), parts in self._parts.items():
            if "id" in parts:
                return BuiltArtifact(parts["id"], parts.get("builder-id", ""), target, parts.get("string", ""))
        return None

    def failure(self, log: Path, why: str = "", hint: str = "") -> BuildError:
        """The error that says what failed."""
        errors = [*([why] if why else []), *self._errors]
        return build_failure(
            blame=self.blame, errors=errors[:_SHOWN_ERRORS], tail=tuple(self._tail), log=log, hint=hint
        )

    def _note(self, record: Record) -> None:
        self._log.write(record_text(record))
        if record.type == "error" and record.data:
            self._errors.append(" ".join(plain(record.data[0]).split()))
        elif record.type == "artifact" and len(record.data) >= 3:
            number, name, value = record.data[:3]
            self._parts.setdefault((record.target, number), {})[name] = value

    def _listen(self, said: Said) -> None:
        # An event is read before it is scrubbed: what is cut out of a text must not break the JSON around it.
        event = parse_event(said.text.strip()) if said.target else None
        said = dataclasses.replace(said, text=self._scrubbed(said.text))
        self._log.write(said_text(said))
        match event:
            case None:
                self._prose(said)
                return
            case BrokenEvent():
                event = dataclasses.replace(event, text=self._scrubbed(event.text), why=self._scrubbed(event.why))
                self._tail.append(f"{event.why}: {event.text}")
            case ResourceEvent() | PhaseEvent():
                event = dataclasses.replace(event, reason=self._scrubbed(event.reason))
                self._judge(event)
            case ArtifactEvent() | ReportEvent():
                pass
        self._display.event(event)

    def _judge(self, event: ResourceEvent | PhaseEvent) -> None:
        if isinstance(event, PhaseEvent) and event.status == "finished":
            self.blame = None  # the provisioner was run again, and what had failed came right
        elif event.status == "failed" and not isinstance(self.blame, ResourceEvent):
            # The resource is the better answer; the phase that then fails for it repeats it.
            self.blame = event

    def _prose(self, said: Said) -> None:
        self._tidying = self._tidying or said.text.startswith(_TIDYING)
        if not self._tidying and said.text.strip() and (said.target or not said.text.startswith(_EPILOGUE)):
            self._tail.append(said.text.rstrip())
        self._cancelled_cleanly = self._cancelled_cleanly or said.text.startswith(_CANCELLED_CLEANLY)
        self.aborted = self.aborted or bool(_ABORTED.match(said.text))
        self._traced |= dict.fromkeys(self._traces.findall(said.text))
        if not said.target and said.error and said.text.startswith("Error: "):
            self._errors.append(said.text.removeprefix("Error: "))
        self._summarise(said)
        self._display.said(said)
        if self._on_question is not None and (failed := _FAILED_STEP.fullmatch(said.text)):
            self._on_question(failed["step"])

    def _summarise(self, said: Said) -> None:
        """Take what Packer tells people at the end, and machines in records of their own."""
        if not said.target and said.text.startswith(_ARTIFACTS):
            self._made_something = True
        elif summary := _SUMMARY.fullmatch(said.text):
            if self._made_something:
                number = str(len(self._parts))
                self._parts[summary["target"], number] = {"id": summary["text"], "string": summary["text"]}
            elif self._on_question is not None:
                self._errors.append(summary["text"])

    def _scrubbed(self, text: str) -> str:
        return scrub(text, self._secrets)
