"""Runs Packer on a rendered tree: validates and builds it, and returns the artifact or raises an error with the cause.

The output of a build goes to the display, as progress, and to the log. A build has a folder of its own, and a named
pipe on which Packer waits for the verdict on the machine's report, before it seals the machine.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

from imagegen.base.console import Console
from imagegen.base.errors import BuildError, RefusedError, ToolError
from imagegen.base.locks import locked
from imagegen.build import process
from imagegen.build.display import Display
from imagegen.build.events import ArtifactEvent, BrokenEvent, PhaseEvent, ReportEvent, ResourceEvent, parse_event
from imagegen.build.logs import FILE, GuestLogs
from imagegen.build.output import LOGS, BuildLog, OutputLine, Record, plain, read_line, scrub
from imagegen.build.process import ProgramRunner, ProgramStreamer, Supervision
from imagegen.build.supervisor import Grace, Orphan
from imagegen.build.tools import Toolchain


@dataclasses.dataclass(frozen=True)
class BuildFolder:
    """The folder of one build: out/<name>/<id>/."""

    root: Path

    @property
    def tree(self) -> Path:
        """What Packer reads."""
        return self.root / "tree"

    @property
    def log(self) -> Path:
        """The log of Packer's output."""
        return self.root / "packer.log"

    @property
    def journal(self) -> Path:
        """The journals of the runs of this config."""
        return self.root.parent / "journal"

    def report(self, run_id: str) -> Path:
        """The report of the machine of a run. The file has the run's name, so that it is taken for no other image's."""
        return self.root / "reports" / f"{run_id}.json"

    @property
    def verdict_pipe(self) -> Path:
        """The named pipe on which Packer waits for the verdict on the report."""
        return self.root / "verdict.pipe"

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder: another build of the image would delete this one's report and log."""
        with locked(self.root / ".lock", wait_s=0, waiting=self._refuse_second_run):
            yield

    def _refuse_second_run(self) -> None:
        raise RefusedError(
            f"another run is using {self.root}: it builds or publishes the same image",
            hint="wait until it ends, or use another folder with --out",
        )


class VerdictPipe(contextlib.AbstractContextManager["VerdictPipe"]):
    """The pipe of one build. Without an answer, Packer makes no image: it waits, and then fails.

    `judge` returns why the report is rejected, or None.
    """

    def __init__(self, file: Path, judge: Callable[[], str | None]) -> None:
        self._file = file
        self._judge = judge
        self.rejection: str | None = None
        """Why the report was rejected; None if nobody has asked yet, or if it was accepted."""
        file.unlink(missing_ok=True)
        try:
            os.mkfifo(file, 0o600)
        except OSError as fault:
            raise ToolError(
                f"the named pipe {file} cannot be created: {fault.strerror}",
                hint="use a folder on a file system that supports named pipes",
            ) from fault

    @property
    def variables(self) -> dict[str, str]:
        """The variable with which Packer waits."""
        return {"verdict_pipe": str(self._file)}

    def answer(self) -> None:
        """Judge the report if Packer is waiting for the verdict."""
        try:
            pipe = os.open(self._file, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            # Nobody is reading.
            return
        try:
            self.rejection = self._judge()
            # The reader may have its answer already, and be closing the pipe.
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, b"rejected\n" if self.rejection else b"accepted\n")
        finally:
            os.close(pipe)

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)


_SHOWN_LINES: Final = 15
_SHOWN_ERRORS: Final = 5
# At its end Packer repeats its errors. These lines would push the cause out of the lines that are kept.
_EPILOGUE: Final = ("==> ", "--> ")
# How a plugin says why its cloud rejected a template: the code of the outer error, then those of the inner ones.
# Packer's own error may have only the outer one.
_REJECTION = re.compile(r"ERROR: +-> (?P<text>\S.*)")
# Packer's whole error when the process of a plugin ends without an answer.
_CRASHED = re.compile(r"(?:unexpected EOF|connection is shut down)")
# The exit code of a command whose connection broke, in plugins with versions of Packer's SDK before 0.6.4. Newer ones
# connect again.
_DISCONNECTED: Final = "non-zero exit status: 16001"
_CANCELLED_CLEANLY: Final = "Cleanly cancelled builds"
# Lines after this one are about clean-up: the reason for a failure stands before it.
_CLEANING_UP: Final = "Provisioning step had errors"
# Packer's error if its clean-up provisioner, which brings the machine's logs, fails too.
_TWO_ERRORS = re.compile(r"Cleanup failed: (?P<why>.*?)\. Original Provisioning error: (?P<first>.*)", re.DOTALL)
# Packer prints one of these when it cleans nothing up, after a failure or an interrupt.
_ABORTED = re.compile(
    r'Step "\w+" failed, aborting\.\.\.|Interrupted, aborting\.\.\.|aborted: skipping cleanup of step '
)
_REJECTED_HINT: Final = (
    "run the same command again; if the report is rejected again, something changes the machine during the build: "
    "the report is in the folder `reports` beside the log"
)
# What PACKER_LOG=1 makes Packer and its plugins write to standard error.
_DEBUG_LINE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d ")


class PackerError(BuildError):
    """A run of Packer failed."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        details: Iterable[str] = (),
        causes: Iterable[str] = (),
        crashed: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, details=details)
        self.causes = tuple(causes)
        """Packer's errors. Empty where a resource or a phase failed: Packer did nothing wrong then."""
        self.crashed = crashed
        """Whether a plugin crashed, so that nothing was cleaned up."""


class BuildOutput:
    """Reads the lines of one build: logs them, passes progress to the display, and keeps what the result needs."""

    def __init__(
        self,
        log: BuildLog,
        display: Display,
        secrets: tuple[str, ...],
        traces: str,
        guest_logs: Path,
    ) -> None:
        self._log = log
        self._display = display
        self._scrub = functools.partial(scrub, secrets=secrets)
        self._guest_logs = GuestLogs(guest_logs, functools.partial(scrub, secrets=secrets))
        self._traces = re.compile(traces)
        self.traced: dict[str, None] = {}
        """The names of what Packer made in the account, as its output has them, in order."""
        self._tail: collections.deque[str] = collections.deque(maxlen=_SHOWN_LINES)
        self._errors: list[str] = []
        self._rejections: list[str] = []
        self._ids: list[str] = []
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
            if LOGS not in line:
                self._log.write(self._scrub(line))
        else:
            self.add_line(line)

    @property
    def cleaned_up(self) -> bool:
        """Whether Packer cleaned up after an interrupt."""
        return self._cancelled_cleanly and not self.aborted

    @property
    def crashed(self) -> bool:
        """Whether a plugin crashed, so that Packer cleaned nothing up."""
        return any(_CRASHED.fullmatch(error) for error in self._errors)

    @property
    def artifact(self) -> str:
        """The id of the builder's artifact, which contains the cloud's id of the image. Empty without an artifact.

        Artifacts of post-processors come after it.
        """
        return self._ids[0] if self._ids else ""

    def failure(self, log: Path, why: str = "", hint: str = "", rejection: str | None = None) -> BuildError:
        """The error names the resource or phase that failed, or Packer's own error; then the last lines and the log.

        `rejection` is why the report was rejected. Then Packer's own error says only that it was told so.
        """
        if rejection:
            ends = [*([line] if (line := self._guest_logs.line) else []), f"the full log: {log}"]
            return BuildError(f"no image was made: {rejection}", details=ends, hint=hint or _REJECTED_HINT)
        if not why and self.crashed:
            why = "its plugin crashed"
        elif not why and any(_DISCONNECTED in error for error in self._errors):
            why = "its plugin lost the WinRM connection to the machine; a newer version of the plugin connects again"
        errors = [*([why] if why else []), *self._errors, *self._rejections][:_SHOWN_ERRORS]
        causes = [] if self.culprit else [*self._errors, *self._rejections]
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
        details += [line] if (line := self._guest_logs.line) else []
        details = [*details, f"the full log: {log}"]
        return PackerError(message, hint=hint, details=details, causes=causes, crashed=self.crashed)

    def _add_record(self, record: Record) -> None:
        self._log.write(record.logged)
        if record.type == "error" and record.data and (both := _TWO_ERRORS.match(plain(record.data[0]))):
            self._guest_logs.explain(" ".join(both["why"].split()))
            record = dataclasses.replace(record, data=(both["first"],))
        if record.type == "error" and record.data:
            self._errors.append(" ".join(plain(record.data[0]).split()))
        elif record.type == "artifact" and record.data[1:2] == ("id",):
            self._ids += record.data[2:3]

    def _read_output(self, output: OutputLine) -> None:
        # Before Packer asks for the logs, such a line is one of the build's own output.
        if self._cleaning_up and output.target and self._guest_logs.take(output.text.strip()):
            return
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
        if output.text.startswith(_CLEANING_UP):
            self._cleaning_up = self._guest_logs.is_asked = True
        if not self._cleaning_up and output.text.strip() and (output.target or not output.text.startswith(_EPILOGUE)):
            self._tail.append(output.text.rstrip())
        self._cancelled_cleanly = self._cancelled_cleanly or output.text.startswith(_CANCELLED_CLEANLY)
        self.aborted = self.aborted or bool(_ABORTED.match(output.text))
        self.traced |= dict.fromkeys(self._traces.findall(output.text))
        if output.target and (rejection := _REJECTION.fullmatch(output.text)):
            self._rejections.append(rejection["text"])
        if not output.target and output.error and output.text.startswith("Error: "):
            self._errors.append(output.text.removeprefix("Error: "))
        self._display.show_output(output)


_VALIDATE_TIMEOUT_S: Final = 300
# What Packer prints if a plugin ends at once: that it ended, or the plugin's last words, whichever Packer sees first.
# A plugin makes its socket in TMPDIR, and Unix limits the path of a socket to 107 characters, of which its own name has
# 24.
_NOT_STARTED: Final = re.compile("plugin exited before we could connect|Error starting plugin server")
_LONGEST_TMPDIR: Final = 80
# A cloud takes minutes to delete a machine, and Packer prints nothing meanwhile.
CLEAN_UP: Final = Grace(least_s=20 * 60, quiet_s=5 * 60)


@dataclasses.dataclass(frozen=True)
class CloudSide:
    """What a run of Packer needs to know about its cloud and about its secrets."""

    names: frozenset[str] = frozenset()
    """The environment variables that Packer sees. A name that ends with `*` is a prefix."""
    secret_names: frozenset[str] = frozenset()
    """Variables that hold secrets although their names do not show it."""
    traces: str = "(?!)"
    """A regular expression for the names of the temporary resources that Packer makes in the account."""
    advice: str = ""
    """How to find and delete the resources that Packer did not delete."""
    secret_texts: tuple[str, ...] = ()
    """Other texts that no output may hold."""


def validate_tree(
    tools: Toolchain,
    tree: Path,
    *,
    environ: Mapping[str, str],
    cloud: CloudSide = CloudSide(),
    run: ProgramRunner = process.run,
) -> None:
    """RefusedError with Packer's messages unless the tree is formatted and valid."""
    child_environ = process.build_environment(environ, tools.environment, {}, cloud.names | cloud.secret_names)
    secrets = process.secret_values(environ, cloud.secret_names)
    for arguments, quality in ((("fmt", "-check", "-diff"), "formatted"), (("validate",), "valid")):
        try:
            done = run([tools.packer, *arguments, "."], environ=child_environ, cwd=tree, timeout=_VALIDATE_TIMEOUT_S)
        except TimeoutError as overdue:
            raise ToolError(str(overdue)) from overdue
        if done.returncode != 0:
            details = [scrub(line, secrets) for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            if len(child_environ.get("TMPDIR", "")) > _LONGEST_TMPDIR and any(map(_NOT_STARTED.search, details)):
                hint = f"set TMPDIR to a folder whose path has at most {_LONGEST_TMPDIR} characters"
                raise ToolError("Packer's plugin cannot make its socket in TMPDIR", hint=hint, details=details)
            raise RefusedError(f"the tree in {tree} is not {quality}", details=details)


@dataclasses.dataclass(frozen=True)
class PackerBuild:
    """One run of `packer build`."""

    tree: Path
    log: Path
    timeout_s: float
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cloud: CloudSide = CloudSide()
    on_error: str = "cleanup"
    """What Packer does with its machine when the build fails: `cleanup` or `abort`."""
    verdict: VerdictPipe | None = None


def build_tree(
    tools: Toolchain,
    job: PackerBuild,
    *,
    environ: Mapping[str, str],
    display: Display,
    stream: ProgramStreamer = process.stream,
) -> str:
    """Build the image: the artifact as Packer reports it. KeyboardInterrupt once Packer cleaned up after a Ctrl-C."""
    tree, log, cloud, verdict = job.tree, job.log, job.cloud, job.verdict
    flags = ["-machine-readable", f"-on-error={job.on_error}", "-color=false", "."]
    names = cloud.names | cloud.secret_names | {"PACKER_LOG"}
    secrets = process.secret_values({**environ, **job.variables}, cloud.secret_names, cloud.secret_texts)
    log.parent.mkdir(parents=True, exist_ok=True)
    with BuildLog(log) as file:
        output = BuildOutput(file, display, secrets, cloud.traces, log.with_name(FILE))
        try:
            code = stream(
                [tools.packer, "build", *flags],
                environ=process.build_environment(environ, tools.environment, job.variables, names),
                cwd=tree,
                timeout=job.timeout_s,
                on_line=output.add_line,
                supervision=Supervision(
                    output.add_error_line,
                    verdict.answer if verdict else None,
                    CLEAN_UP,
                    Orphan(CLEAN_UP, str(log), secrets),
                ),
            )
        except KeyboardInterrupt:
            for line in _leftovers_lines(output, tree, cloud, log):
                display.warn(line)
            raise
        except TimeoutError as overdue:
            raise output.failure(log, str(overdue), _leftovers_hint(output, tree, cloud)) from overdue
    if code != 0 or output.culprit is not None:
        hint = _leftovers_hint(output, tree, cloud) if output.aborted or output.crashed else ""
        raise output.failure(log, "", hint, verdict.rejection if verdict else None)
    if not output.artifact:
        raise output.failure(log, "it ended with code 0 but made no artifact")
    return output.artifact


def _leftovers_lines(output: BuildOutput, tree: Path, cloud: CloudSide, log: Path) -> list[str]:
    """What to warn of after an interrupt; empty where Packer cleaned up."""
    hint = _leftovers_hint(output, tree, cloud)
    return [*hint.splitlines(), f"the full log: {log}"] if hint else []


def _leftovers_hint(output: BuildOutput, tree: Path, cloud: CloudSide) -> str:
    """What Packer named and did not delete, and what to do. Empty where it cleaned up after an interrupt."""
    if output.cleaned_up:
        return ""
    named = ", ".join(output.traced)
    problem = f"Packer did not delete {named}" if named else "Packer did not report whether it deleted everything"
    return "\n".join([f"{problem} (built from {tree})", *([cloud.advice] if cloud.advice else [])])


def build_on_first(
    sizes: Sequence[str], build: Callable[[str], str], *, no_capacity: Set[str], console: Console
) -> str:
    """Call `build` with each size in turn, until it does not fail for lack of capacity.

    `no_capacity` are the cloud's error codes for a lack of capacity.
    """
    for size, following in itertools.pairwise(sizes):
        try:
            return build(size)
        except PackerError as error:
            codes = [code for code in sorted(no_capacity) if any(code in cause for cause in error.causes)]
            if not codes:
                raise
            for line in (f"{size} is not available now ({codes[0]}): trying {following}", *error.hint.splitlines()):
                console.warn(line)
    return build(sizes[-1])
