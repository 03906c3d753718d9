"""Runs Packer on a rendered tree: validates it, builds it, answers with the artifact or an error that says what failed.

Writes the log; touches nothing else on this machine.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from typing import IO, TYPE_CHECKING, Final

from imagegen.build import environment, process
from imagegen.build.events import ArtifactEvent, BrokenEvent, PhaseEvent, ReportEvent, ResourceEvent, parse_event
from imagegen.build.failure import build_failure
from imagegen.build.packer_output import Record, Said, plain, read_line
from imagegen.build.scrub import scrub
from imagegen.errors import BuildError, RefusedError, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.build.process import Run, Stream
    from imagegen.build.progress import Display
    from imagegen.build.toolchain import Toolchain

_VALIDATE_TIMEOUT_S: Final = 300
_KEPT_LINES: Final = 40
_SHOWN_ERRORS: Final = 5
_LOG_MODE: Final = 0o600
# Packer's last words repeat its errors, and would push what led to them out of the lines that are kept.
_EPILOGUE: Final = ("==> ", "--> ")
_CANCELLED_CLEANLY: Final = "Cleanly cancelled builds"
# What Packer says after this is clean-up: the reason for a failure stands before it.
_TIDYING: Final = "Provisioning step had errors"


@dataclasses.dataclass(frozen=True)
class BuiltArtifact:
    """What a build made, in Packer's words: the id is `region:ami,…` on AWS and a resource id on Azure."""

    artifact_id: str
    builder: str
    target: str
    text: str


def validate_tree(
    tools: Toolchain,
    tree: Path,
    *,
    environ: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    secret_names: frozenset[str] = frozenset(),
    run: Run = process.run,
) -> None:
    """RefusedError with Packer's words unless the tree is formatted and valid."""
    child_environ = environment.build_environment(environ, tools.environment, variables or {}, secret_names)
    secrets = environment.secret_values({**environ, **(variables or {})}, secret_names)
    for words, what in ((("fmt", "-check", "-diff"), "formatted"), (("validate",), "valid")):
        argv = [tools.packer, *words, "."]
        try:
            done = run(argv, environ=child_environ, cwd=tree, timeout=_VALIDATE_TIMEOUT_S)
        except TimeoutError as overdue:
            raise ToolError(str(overdue)) from overdue
        if done.returncode != 0:
            said = [scrub(line, secrets) for line in (done.stdout + done.stderr).splitlines()]
            raise RefusedError(f"the tree in {tree} is not {what}", details=[line for line in said if line.strip()])


def build_tree(
    tools: Toolchain,
    tree: Path,
    *,
    environ: Mapping[str, str],
    variables: Mapping[str, str],
    log: Path,
    display: Display,
    timeout_s: float,
    secret_names: frozenset[str] = frozenset(),
    stream: Stream = process.stream,
) -> BuiltArtifact:
    """Build the image. BuildError where that fails; KeyboardInterrupt once Packer has cleaned up after a Ctrl-C."""
    argv: list[str | Path] = [tools.packer, "build", "-machine-readable", "-color=false", "."]
    child_environ = environment.build_environment(environ, tools.environment, variables, secret_names)
    secrets = environment.secret_values({**environ, **variables}, secret_names)
    log.parent.mkdir(parents=True, exist_ok=True)
    with _private(log) as file:
        hearing = _Hearing(file, display, secrets)
        try:
            code = stream(argv, environ=child_environ, cwd=tree, timeout=timeout_s, on_line=hearing.hear)
        except KeyboardInterrupt:
            if not hearing.cancelled_cleanly:
                display.warn(f"Packer was stopped before it had cleaned up; look for what it left behind: {log}")
            raise
        except TimeoutError as overdue:
            raise hearing.failure(log, str(overdue)) from overdue
    if code != 0 or hearing.blame is not None:
        raise hearing.failure(log)
    if hearing.artifact is None:
        raise hearing.failure(log, "it ended well and made no artifact")
    return hearing.artifact


class _Hearing:
    """Takes in the lines of one build: keeps what the outcome needs, logs all, and hands progress to the display."""

    def __init__(self, file: IO[str], display: Display, secrets: tuple[str, ...]) -> None:
        self._file = file
        self._display = display
        self._secrets = secrets
        self._tail: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._errors: list[str] = []
        self._parts: dict[tuple[str, str], dict[str, str]] = {}
        self.blame: ResourceEvent | PhaseEvent | None = None
        self.cancelled_cleanly = False
        self._tidying = False

    def hear(self, line: str) -> None:
        match read_line(line):
            case Record() as record:
                self._note(dataclasses.replace(record, data=tuple(map(self._scrubbed, record.data))))
            case said:
                for one in said:
                    self._listen(one)

    @property
    def artifact(self) -> BuiltArtifact | None:
        """The builder's: post-processors' come after it."""
        for (target, _), parts in self._parts.items():
            if "id" in parts:
                return BuiltArtifact(parts["id"], parts.get("builder-id", ""), target, parts.get("string", ""))
        return None

    def failure(self, log: Path, why: str = "") -> BuildError:
        errors = [*([why] if why else []), *self._errors]
        return build_failure(blame=self.blame, errors=errors[:_SHOWN_ERRORS], tail=tuple(self._tail), log=log)

    def _note(self, record: Record) -> None:
        self._log(" ".join((record.type, record.target, *record.data)))
        if record.type == "error" and record.data:
            self._errors.append(" ".join(plain(record.data[0]).split()))
        elif record.type == "artifact" and len(record.data) >= 3:
            number, name, value = record.data[:3]
            self._parts.setdefault((record.target, number), {})[name] = value

    def _listen(self, said: Said) -> None:
        # An event is read before it is scrubbed: what is cut out of a text must not break the JSON around it.
        event = parse_event(said.text.strip()) if said.target else None
        said = dataclasses.replace(said, text=self._scrubbed(said.text))
        self._log(f"{said.target}: {said.text}" if said.target else said.text)
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
        self.cancelled_cleanly = self.cancelled_cleanly or said.text.startswith(_CANCELLED_CLEANLY)
        if not said.target and said.error and said.text.startswith("Error: "):
            self._errors.append(said.text.removeprefix("Error: "))
        self._display.said(said)

    def _scrubbed(self, text: str) -> str:
        return scrub(text, self._secrets)

    def _log(self, text: str) -> None:
        self._file.write(f"{time.strftime('%H:%M:%SZ', time.gmtime())} {text}\n")
        self._file.flush()


def _private(log: Path) -> IO[str]:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _LOG_MODE)
    os.fchmod(descriptor, _LOG_MODE)  # one that was there keeps its mode when opened
    return os.fdopen(descriptor, "w", encoding="utf-8")
