"""The guest: receives the command lines that Packer sends over WinRM, checks them, and carries them out.

It recognises Packer's own commands by their form, and compares everything else with the bytes of the tree. Commands
must come in the order of the tree. Any other command is a fault and is not carried out.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import threading
from typing import TYPE_CHECKING, TypeVar

from imagegen.rehearsal.expected import (
    BUNDLE_PATH,
    CREDENTIALS_PATH,
    ENTRY_PATH,
    GENERALISE_PATH,
    LOGS_PATH,
    REPORT_PATH,
)
from imagegen.rehearsal.machine.credentials_file import parse_file
from imagegen.rehearsal.winrm import packer
from imagegen.rehearsal.winrm.command import Result, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from imagegen.rehearsal.expected import Expected, ExpectedDownload, ExpectedPhase

_RESTART_DUE = 3010
# The answer of Windows to `shutdown` during a shutdown. windows-restart then tries again later.
_SHUTDOWN_IN_PROGRESS = Result(exit_code=1115, stderr=b"A system shutdown is in progress.(1115)\r\n")
# The limit of cmd.exe.
_LONGEST_COMMAND = 8191


@dataclasses.dataclass(frozen=True)
class Effects:
    """The operations on the machine. Paths have backslashes. A missing file raises FileNotFoundError."""

    write_file: Callable[[str, bytes], None]
    read_file: Callable[[str], bytes]
    restart: Callable[[], None]
    run_phase: Callable[[Sequence[str], Write], int]
    generalise: Callable[[Write], int]
    print_logs: Callable[[Write], int]


@dataclasses.dataclass(frozen=True)
class _Upload:
    name: str
    path: str
    data: bytes

    def __str__(self) -> str:
        return f"the upload of {self.name} to {self.path}"


@dataclasses.dataclass(frozen=True)
class _Variables:
    """The upload of a provisioner's variables, with the credentials of registries and of private artifacts."""

    path: str
    credentials: Mapping[str, str]
    downloads: Mapping[str, ExpectedDownload]

    def __str__(self) -> str:
        return f"the upload of the variables to {self.path}"

    def fault(self, data: bytes) -> str:
        """What is wrong with these bytes. It shows none of them."""
        delivered = parse_file(data)
        if delivered is None:
            return f"{self} has not the form in which Packer's powershell provisioner writes variables"
        wanted = {"auths": {key: {"auth": auth} for key, auth in self.credentials.items()}}
        found = json.loads(delivered.registries) if delivered.registries else {"auths": {}}
        if found != wanted:
            return f"{self} has not the credentials of {' and '.join(self.credentials) or 'no registry'}"
        if delivered.downloads.keys() != self.downloads.keys():
            return f"{self} has not the addresses of {' and '.join(self.downloads) or 'no artifact'}"
        for name, one in delivered.downloads.items():
            if fault := self.downloads[name].fault(one.url, one.authorization):
                return f"{self}: the address of {name} {fault}"
        return ""


@dataclasses.dataclass(frozen=True)
class _ScriptRun:
    name: str
    command: str
    script: _Upload
    allowed: tuple[int, ...]
    act: Callable[[Write], int]

    def __str__(self) -> str:
        return f"the run of {self.name}: {self.command}"


@dataclasses.dataclass(frozen=True)
class _Restart:
    after: str

    def __str__(self) -> str:
        return f"the restart after {self.after}"


@dataclasses.dataclass(frozen=True)
class _RestartCheck:
    after: str

    def __str__(self) -> str:
        return f"the check that the machine is up again after {self.after}"


@dataclasses.dataclass(frozen=True)
class _Download:
    path: str

    def __str__(self) -> str:
        return f"the download of {self.path}"


_Step = _Upload | _Variables | _ScriptRun | _Restart | _RestartCheck | _Download
_StepT = TypeVar("_StepT", _Upload, _Variables, _ScriptRun, _Restart, _RestartCheck, _Download)


class _DeviationError(Exception):
    """A command differs from those of the tree, or comes in the wrong order."""


class RehearsedGuest:
    """Carries out a tree once, in its order. It is the `Guest` of a `WinRMServer`."""

    def __init__(
        self, expected: Expected, effects: Effects, *, scripts: packer.Scripts = packer.PACKER_SCRIPTS
    ) -> None:
        self._effects = effects
        self._scripts = scripts
        self._steps = tuple(_steps(expected, effects))
        self._done = 0
        self._log_upload, self._log_run = _log_steps(expected, effects)
        self._failure = ""
        self._partial_uploads: dict[str, bytearray] = {}
        self._complete_uploads: set[str] = set()
        self._is_shutting_down = False
        self._is_cut_off = False
        self._has_trial_restart = False
        self._faults: dict[str, None] = {}
        self._busy = threading.Lock()

    @property
    def faults(self) -> tuple[str, ...]:
        """Every deviation, in order and without duplicates: Packer retries uploads."""
        return tuple(self._faults)

    @property
    def is_finished(self) -> bool:
        """Whether every step of the tree was carried out."""
        return not self.missing()

    def missing(self) -> tuple[str, ...]:
        """The steps that were not carried out, in order."""
        files = (*self._partial_uploads, *sorted(self._complete_uploads))
        return (
            *(str(step) for step in self._steps[self._done :]),
            *(f"the end of the upload to {file}" for file in files),
        )

    def run(self, command: str, write: Write) -> Result:
        """Check and carry out one command line."""
        if not self._busy.acquire(blocking=False):
            return self._reject(f"received {packer.readable(command)} while another command was running")
        try:
            return self._carry_out(command, write)
        except _DeviationError as error:
            return self._reject(str(error))
        finally:
            self._busy.release()

    def disconnected(self) -> None:
        """Packer lost its connection while a phase runs: it uploads the script again, and runs the phase again."""
        self._is_cut_off = True

    def restarted(self) -> None:
        """The machine has restarted."""
        self._is_shutting_down = False

    def _reject(self, message: str) -> Result:
        self._faults.setdefault(message)
        return Result(exit_code=1, stderr=f"{message}\r\n".encode())

    def _carry_out(self, command: str, write: Write) -> Result:
        if len(command) > _LONGEST_COMMAND:
            raise _DeviationError(
                f"a command line has {len(command)} characters, the maximum of cmd.exe is {_LONGEST_COMMAND}"
            )
        match packer.recognise(command, self._scripts):
            case packer.Chunk(file, data):
                if file in self._complete_uploads:
                    raise _DeviationError(f"received more of the upload {file} after it was complete")
                self._partial_uploads.setdefault(file, bytearray()).extend(data)
            case packer.Restore(file, destination):
                self._restore(file, destination)
            case packer.Discard(file):
                if file not in self._complete_uploads:
                    raise _DeviationError(f"received the removal of {file}, whose upload is not complete")
                self._complete_uploads.remove(file)
            case packer.Read(path):
                self._download(path, write)
            case packer.Probe():
                if self._done or self._partial_uploads:
                    raise _DeviationError(f"Packer connected again; expected {self._describe_next()}")
                write(b"WinRM connected.\r\n")
            case packer.Restart():
                self._expect(_Restart, "a restart")
                self._effects.restart()
                self._done += 1
                self._is_shutting_down = True
                return Result(restarts=True)
            case packer.RestartTrial() | packer.RestartAbort() | packer.RestartCheck() as query:
                return self._check_restart(query, write)
            case None:
                return self._run_script(command, write)
        return Result()

    def _describe_next(self) -> str:
        if self._failure:
            return f"nothing more, because {self._failure}"
        return str(self._steps[self._done]) if self._done < len(self._steps) else "nothing more: the image is finished"

    def _expect(self, kind: type[_StepT], received: str) -> _StepT:
        step = self._steps[self._done] if self._done < len(self._steps) else None
        if self._failure or not isinstance(step, kind):
            raise _DeviationError(f"received {received}; expected {self._describe_next()}")
        return step

    @property
    def _may_ask_for_logs(self) -> bool:
        """Packer does that after an error, also after one that the guest does not see: behind the last step, or if the
        host rejects the report."""
        is_reported = isinstance(self._steps[max(self._done - 1, 0)], _Download)
        return bool(self._failure or self._faults) or is_reported or self._done == len(self._steps)

    def _find_upload(self, destination: str, received: str) -> _Upload:
        for step in (*self._steps[self._done :][:1], self._log_upload) if self._may_ask_for_logs else ():
            if isinstance(step, _Upload) and _to_backslashes(step.path) == destination:
                return step
        return self._expect(_Upload, received)

    def _restore(self, file: str, destination: str) -> None:
        received = f"an upload to {destination}"
        if file not in self._partial_uploads:
            raise _DeviationError(f"received {received} without any bytes; expected {self._describe_next()}")
        data = bytes(self._partial_uploads.pop(file))
        if destination == _to_backslashes(CREDENTIALS_PATH):
            self._accept_variables(file, destination, data)
            return
        step = self._find_upload(destination, received)
        if destination != _to_backslashes(step.path):
            raise _DeviationError(f"received {received}; expected {step}")
        if data != step.data:
            raise _DeviationError(
                f"{step} has other bytes than the tree: sha256 {hashlib.sha256(data).hexdigest()},"
                f" expected {hashlib.sha256(step.data).hexdigest()}"
            )
        self._effects.write_file(destination, data)
        self._complete_uploads.add(file)
        self._done += step in self._steps[self._done :][:1]

    def _accept_variables(self, file: str, destination: str, data: bytes) -> None:
        step = self._expect(_Variables, f"an upload to {destination}")
        if fault := step.fault(data):
            raise _DeviationError(fault)
        self._effects.write_file(destination, data)
        self._complete_uploads.add(file)
        self._done += 1

    def _download(self, path: str, write: Write) -> None:
        received = f"a download of {path}"
        step = self._expect(_Download, received)
        if _to_backslashes(path) != step.path:
            raise _DeviationError(f"received {received}; expected {step}")
        try:
            data = self._effects.read_file(step.path)
        except FileNotFoundError as error:
            raise _DeviationError(f"received {received}, but the file does not exist") from error
        write(base64.b64encode(data) + b"\r\n")
        self._done += 1

    def _check_restart(
        self, query: packer.RestartTrial | packer.RestartAbort | packer.RestartCheck, write: Write
    ) -> Result:
        # windows-restart tests whether the machine is shutting down: it schedules another restart. If that succeeds,
        # the machine is up again, and windows-restart must abort the scheduled restart first.
        received = f"windows-restart's {type(query).__name__}"
        self._expect(_RestartCheck, received)
        if self._is_shutting_down:
            # Packer can be quicker than the restart that it has requested.
            if isinstance(query, packer.RestartTrial):
                return _SHUTDOWN_IN_PROGRESS
            raise _DeviationError(f"received {received} before the machine went down")
        if isinstance(query, packer.RestartAbort) is not self._has_trial_restart:
            raise _DeviationError(
                "a trial restart was scheduled twice, not aborted, or aborted without being scheduled"
            )
        match query:
            case packer.RestartTrial():
                self._has_trial_restart = True
            case packer.RestartAbort():
                self._has_trial_restart = False
            case packer.RestartCheck():
                write(b"IMAGEGEN-GUEST restarted.\r\n")
                self._done += 1
        return Result()

    def _run_script(self, command: str, write: Write) -> Result:
        asks = self._may_ask_for_logs and command == self._log_run.command
        step = self._log_run if asks else self._expect(_ScriptRun, f"the command {packer.readable(command)}")
        if command != step.command:
            raise _DeviationError(f"received the command {packer.readable(command)}; expected {step}")
        try:
            is_intact = self._effects.read_file(_to_backslashes(step.script.path)) == step.script.data
        except FileNotFoundError:
            is_intact = False
        if not is_intact:
            raise _DeviationError(f"received {step}, but {step.script.path} is not the tree's {step.script.name}")
        exit_code = step.act(write)
        if self._is_cut_off:
            self._is_cut_off = False
            self._done -= 1  # the upload of the script
        elif exit_code in step.allowed:
            self._done += not asks
        elif not asks:
            self._failure = f"{step.name} ended with exit code {exit_code}"
            if exit_code == _RESTART_DUE:
                self._faults.setdefault(f"{self._failure}, but the plan has no restart after it")
        return Result(exit_code=exit_code)


def _steps(expected: Expected, effects: Effects) -> Iterator[_Step]:
    entry = _Upload("start.ps1", ENTRY_PATH, expected.entry)
    yield _Upload("the bundle", BUNDLE_PATH, expected.bundle)
    if expected.begins_with_restart:
        yield _Restart("the upload of the bundle")
        yield _RestartCheck("the upload of the bundle")
    for phase in expected.phases:
        if phase.credentials or phase.downloads:
            yield _Variables(CREDENTIALS_PATH, phase.credentials, phase.downloads)
        yield entry
        codes = (0, _RESTART_DUE) if phase.restart else (0,)
        yield _ScriptRun(phase.name, phase.command, entry, codes, _phase_runner(effects, phase))
        if phase.restart:
            yield _Restart(phase.name)
            yield _RestartCheck(phase.name)
    yield _Download(REPORT_PATH)
    generalise = _Upload("generalise.ps1", GENERALISE_PATH, expected.generalise)
    yield generalise
    yield _ScriptRun("generalise", expected.generalise_command, generalise, (0,), effects.generalise)


def _log_steps(expected: Expected, effects: Effects) -> tuple[_Upload, _ScriptRun]:
    script = _Upload("logs.ps1", LOGS_PATH, expected.logs)
    run = _ScriptRun("logs", expected.logs_command, script, (0,), effects.print_logs)
    return script, run


def _phase_runner(effects: Effects, phase: ExpectedPhase) -> Callable[[Write], int]:
    return lambda write: effects.run_phase(phase.arguments, write)


def _to_backslashes(path: str) -> str:
    # Packer replaces the slashes in the destination of an upload. Both forms name the same file.
    return path.replace("/", "\\")
