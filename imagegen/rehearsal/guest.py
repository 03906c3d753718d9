"""The machine at the other end of WinRM: knows what Packer says by form and what a tree sends by the tree's own bytes.

In come command lines; out go results and the effects a caller gave. Everything must come in the tree's order;
whatever else comes is a fault and is not done.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import threading
import zipfile
from typing import TYPE_CHECKING, TypeVar

import pydantic

from imagegen.errors import VerificationError
from imagegen.rehearsal.winrm import packer
from imagegen.rehearsal.winrm.command import Result, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BUNDLE_PATH = r"C:\Windows\Temp\imagegen-bundle.zip"
ENTRY_PATH = "C:/Windows/Temp/imagegen-start.ps1"
GENERALISE_PATH = "C:/Windows/Temp/imagegen-generalise.ps1"
VARIABLES_PATH = "C:/Windows/Temp/imagegen-vars.ps1"
REPORT_PATH = r"C:\ProgramData\imagegen\report.json"

_POWERSHELL = "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File"
_RESTART_DUE = 3010
# Windows' own answer to `shutdown` while the machine is on its way down; windows-restart then tries again later.
_SHUTDOWN_IN_PROGRESS = Result(exit_code=1115, stderr=b"A system shutdown is in progress.(1115)\r\n")
# cmd.exe's own limit of a line.
_LONGEST_COMMAND = 8191


@dataclasses.dataclass(frozen=True)
class ExpectedPhase:
    """One run of the entry script, and whether a restart follows it."""

    name: str
    arguments: tuple[str, ...]
    restart: bool

    @property
    def command(self) -> str:
        """The exact command line."""
        return " ".join((_POWERSHELL, ENTRY_PATH, *self.arguments))


@dataclasses.dataclass(frozen=True)
class Expected:
    """Everything that a tree sends, in bytes."""

    bundle: bytes
    entry: bytes
    generalise: bytes
    phases: tuple[ExpectedPhase, ...]
    generalise_command: str = f"{_POWERSHELL} {GENERALISE_PATH}"


@dataclasses.dataclass(frozen=True)
class Effects:
    """What is done to the machine. Paths use a backslash; a file that is not there is a FileNotFoundError."""

    write_file: Callable[[str, bytes], None]
    read_file: Callable[[str], bytes]
    restart: Callable[[], None]
    run_phase: Callable[[Sequence[str], Write], int]
    generalise: Callable[[Write], int]


class _PlannedPhase(pydantic.BaseModel):
    name: str
    restart: bool


class _Plan(pydantic.BaseModel):
    phases: tuple[_PlannedPhase, ...]


def expected_from_tree(tree: Path) -> Expected:
    """Read what a tree sends. Digests and phases come from the bundle's own bytes, never from the tree's variables."""
    bundle = _read(tree, "bundle.zip")
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            plan = archive.read("plan.json")
    except (zipfile.BadZipFile, KeyError) as error:
        raise VerificationError("guest/bundle.zip is no zip that holds a plan.json", details=[str(error)]) from error
    try:
        phases = _Plan.model_validate_json(plan).phases
    except pydantic.ValidationError as error:
        raise VerificationError("plan.json of guest/bundle.zip has no readable phases", details=[str(error)]) from error
    pins = ("-BundleSha256", hashlib.sha256(bundle).hexdigest(), "-PlanSha256", hashlib.sha256(plan).hexdigest())
    return Expected(
        bundle=bundle,
        entry=_read(tree, "start.ps1"),
        generalise=_read(tree, "generalise.ps1"),
        phases=tuple(
            ExpectedPhase(phase.name, ("-Phase", phase.name, "-Bundle", BUNDLE_PATH, *pins), phase.restart)
            for phase in phases
        ),
    )


def _read(tree: Path, name: str) -> bytes:
    try:
        return (tree / "guest" / name).read_bytes()
    except OSError as error:
        raise VerificationError(f"the tree has no readable guest/{name}", details=[str(error)]) from error


@dataclasses.dataclass(frozen=True)
class _Upload:
    """`data` is None for the variables file, whose content is checked by form."""

    what: str
    path: str
    data: bytes | None

    def __str__(self) -> str:
        return f"the upload of {self.what} to {self.path}"


@dataclasses.dataclass(frozen=True)
class _Run:
    what: str
    command: str
    script: _Upload
    allowed: tuple[int, ...]
    act: Callable[[Write], int]

    def __str__(self) -> str:
        return f"the run of {self.what}: {self.command}"


@dataclasses.dataclass(frozen=True)
class _Restart:
    after: str

    def __str__(self) -> str:
        return f"the restart after {self.after}"


@dataclasses.dataclass(frozen=True)
class _Return:
    after: str

    def __str__(self) -> str:
        return f"the check that the machine is back from the restart after {self.after}"


@dataclasses.dataclass(frozen=True)
class _Download:
    path: str

    def __str__(self) -> str:
        return f"the download of {self.path}"


_Step = _Upload | _Run | _Restart | _Return | _Download
_StepT = TypeVar("_StepT", _Upload, _Run, _Restart, _Return, _Download)


class _DeviationError(Exception):
    """What came is not what the tree sends, or not yet."""


class RehearsedGuest:
    """Carries a tree out, once, in its order. It is the `Guest` of a `WinRMServer`."""

    def __init__(
        self, expected: Expected, effects: Effects, *, scripts: packer.Scripts = packer.PACKER_SCRIPTS
    ) -> None:
        self._effects = effects
        self._scripts = scripts
        self._steps = tuple(_steps(expected, effects))
        self._done = 0
        self._failure = ""
        self._arriving: dict[str, bytearray] = {}
        self._arrived: set[str] = set()
        self._going_down = False
        self._trial = False
        self._faults: dict[str, None] = {}
        self._busy = threading.Lock()

    @property
    def faults(self) -> tuple[str, ...]:
        """Every deviation, in the order they came; one that comes again, as Packer retries an upload, is kept once."""
        return tuple(self._faults)

    @property
    def finished(self) -> bool:
        """Whether everything happened that the tree sends."""
        return not self.missing()

    def missing(self) -> tuple[str, ...]:
        """What did not happen, in order."""
        open_uploads = [f"the end of the upload to {file}" for file in (*self._arriving, *sorted(self._arrived))]
        return (*(str(step) for step in self._steps[self._done :]), *open_uploads)

    def run(self, command: str, write: Write) -> Result:
        """Obey one command line."""
        if not self._busy.acquire(blocking=False):
            return self._refuse(f"{packer.readable(command)} came while another command was running")
        try:
            return self._obey(command, write)
        except _DeviationError as error:
            return self._refuse(str(error))
        finally:
            self._busy.release()

    def restarted(self) -> None:
        """The machine went down and comes back."""
        self._going_down = False

    def _refuse(self, message: str) -> Result:
        self._faults.setdefault(message)
        return Result(exit_code=1, stderr=f"{message}\r\n".encode())

    def _obey(self, command: str, write: Write) -> Result:
        if len(command) > _LONGEST_COMMAND:
            raise _DeviationError(f"a command line of {len(command)} characters; cmd.exe takes {_LONGEST_COMMAND}")
        match packer.recognise(command, self._scripts):
            case packer.Chunk(file, data):
                if file in self._arrived:
                    raise _DeviationError(f"more of the upload {file} came after it was complete")
                self._arriving.setdefault(file, bytearray()).extend(data)
            case packer.Restore(file, destination):
                self._restore(file, destination)
            case packer.Discard(file):
                if file not in self._arrived:
                    raise _DeviationError(f"{file} is to be removed and was never completed")
                self._arrived.remove(file)
            case packer.Read(path):
                self._download(path, write)
            case packer.Probe():
                if self._done or self._arriving:
                    raise _DeviationError(f"Packer connected again; expected {self._next()}")
                write(b"WinRM connected.\r\n")
            case packer.Restart():
                self._expect(_Restart, "a restart")
                self._effects.restart()
                self._done += 1
                self._going_down = True
                return Result(restarts=True)
            case packer.RestartTrial() | packer.RestartAbort() | packer.RestartCheck() as word:
                return self._return(word, write)
            case None:
                return self._run(command, write)
        return Result()

    def _next(self) -> str:
        if self._failure:
            return f"nothing more, because {self._failure}"
        return str(self._steps[self._done]) if self._done < len(self._steps) else "nothing more: the image is finished"

    def _expect(self, kind: type[_StepT], came: str) -> _StepT:
        step = self._steps[self._done] if self._done < len(self._steps) else None
        if self._failure or not isinstance(step, kind):
            raise _DeviationError(f"{came} came; expected {self._next()}")
        return step

    def _restore(self, file: str, destination: str) -> None:
        came = f"an upload to {destination}"
        if file not in self._arriving:
            raise _DeviationError(f"{came} came without a byte; expected {self._next()}")
        data = bytes(self._arriving.pop(file))
        step = self._expect(_Upload, came)
        if destination != _backslashed(step.path):
            raise _DeviationError(f"{came} came; expected {step}")
        if step.data is None:
            if not packer.only_packers_variables(data):
                raise _DeviationError(f"{step} sets more than Packer's own variables")
        elif data != step.data:
            raise _DeviationError(
                f"{step} brought other bytes than the tree's: sha256 {hashlib.sha256(data).hexdigest()},"
                f" expected {hashlib.sha256(step.data).hexdigest()}"
            )
        self._effects.write_file(destination, data)
        self._arrived.add(file)
        self._done += 1

    def _download(self, path: str, write: Write) -> None:
        came = f"a download of {path}"
        step = self._expect(_Download, came)
        if _backslashed(path) != step.path:
            raise _DeviationError(f"{came} came; expected {step}")
        try:
            data = self._effects.read_file(step.path)
        except FileNotFoundError as error:
            raise _DeviationError(f"{came} came; the file is not there") from error
        write(base64.b64encode(data) + b"\r\n")
        self._done += 1

    def _return(self, word: packer.RestartTrial | packer.RestartAbort | packer.RestartCheck, write: Write) -> Result:
        # windows-restart tries whether the machine is on its way down by scheduling another restart; where that
        # succeeds the machine is back already, and the restart must be called off before anything else.
        came = f"windows-restart's {type(word).__name__}"
        self._expect(_Return, came)
        if self._going_down:
            # Packer may be quicker than the restart that it has just been told of.
            if isinstance(word, packer.RestartTrial):
                return _SHUTDOWN_IN_PROGRESS
            raise _DeviationError(f"{came} came before the machine went down")
        if isinstance(word, packer.RestartAbort) is not self._trial:
            raise _DeviationError("a trial restart was scheduled twice, not called off, or called off without one")
        match word:
            case packer.RestartTrial():
                self._trial = True
            case packer.RestartAbort():
                self._trial = False
            case packer.RestartCheck():
                write(b"IMAGEGEN-GUEST restarted.\r\n")
                self._done += 1
        return Result()

    def _run(self, command: str, write: Write) -> Result:
        step = self._expect(_Run, f"the command {packer.readable(command)}")
        if command != step.command:
            raise _DeviationError(f"the command {packer.readable(command)} came; expected {step}")
        try:
            intact = self._effects.read_file(_backslashed(step.script.path)) == step.script.data
        except FileNotFoundError:
            intact = False
        if not intact:
            raise _DeviationError(f"{step} came; {step.script.path} is no longer the tree's {step.script.what}")
        exit_code = step.act(write)
        if exit_code in step.allowed:
            self._done += 1
        else:
            self._failure = f"{step.what} ended with {exit_code}"
            if exit_code == _RESTART_DUE:
                self._faults.setdefault(f"{self._failure}, and the plan has no restart after it")
        return Result(exit_code=exit_code)


def _steps(expected: Expected, effects: Effects) -> Iterator[_Step]:
    variables = _Upload("Packer's variables", VARIABLES_PATH, None)
    entry = _Upload("start.ps1", ENTRY_PATH, expected.entry)
    yield _Upload("the bundle", BUNDLE_PATH, expected.bundle)
    for phase in expected.phases:
        yield variables
        yield entry
        codes = (0, _RESTART_DUE) if phase.restart else (0,)
        yield _Run(phase.name, phase.command, entry, codes, _phase(effects, phase))
        if phase.restart:
            yield _Restart(phase.name)
            yield _Return(phase.name)
    yield _Download(REPORT_PATH)
    generalise = _Upload("generalise.ps1", GENERALISE_PATH, expected.generalise)
    yield variables
    yield generalise
    yield _Run("generalise", expected.generalise_command, generalise, (0,), effects.generalise)


def _phase(effects: Effects, phase: ExpectedPhase) -> Callable[[Write], int]:
    return lambda write: effects.run_phase(phase.arguments, write)


def _backslashed(path: str) -> str:
    # Both name the same file; Packer itself turns the slashes of an upload's destination round.
    return path.replace("/", "\\")
