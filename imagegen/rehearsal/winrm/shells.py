"""Answers the requests about shells and their commands. Runs each command in a thread of its own."""

from __future__ import annotations

import dataclasses
import logging
import threading
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.winrm import envelope
from imagegen.rehearsal.winrm.command import Result
from imagegen.rehearsal.winrm.envelope import Action, Fault, Request
from imagegen.rehearsal.winrm.observations import Cost, Observations

if TYPE_CHECKING:
    from imagegen.rehearsal.winrm.command import Guest

log = logging.getLogger(__name__)

# Two streams of this, in base64, stay below the 153,600 bytes that Packer's client asks an envelope to keep to.
_SLICE = 48 * 1024
# WinRM's own limit of one request (MaxTimeoutms), whatever OperationTimeout says.
_LONGEST_WAIT_S = 60.0
# As the proxy waits for its connections.
JOIN_S = 30.0


@dataclasses.dataclass(frozen=True)
class Answer:
    """The response. If `restarts`, the machine restarts after it is sent."""

    body: bytes
    ok: bool = True
    restarts: bool = False


class TerminatedError(Exception):
    """Raised in the thread of a terminated command when the command writes."""


class _Command:
    """One command: its output that the client has not read yet, and its result."""

    def __init__(self, command: str, guest: Guest, observations: Observations) -> None:
        self.id = str(uuid.uuid4()).upper()
        self._guest = guest
        self._observations = observations
        self._changed = threading.Condition()
        self._stdout = bytearray()
        self._stderr = b""
        self._result: Result | None = None
        self._terminated = False
        self._thread = threading.Thread(target=self._run, args=(command,), name=f"command {self.id}", daemon=True)
        self._thread.start()

    def _run(self, command: str) -> None:
        try:
            result = self._guest.run(command, self._write)
        except TerminatedError:
            return
        except Exception as error:  # a defect of the guest must fail the rehearsal, not leave its client waiting
            log.exception("the guest failed while it ran a command")
            message = f"the guest failed: {type(error).__name__}: {error}"
            self._observations.add_fault(message)
            result = Result(exit_code=1, stderr=message.encode())
        with self._changed:
            if not self._terminated:
                self._stderr = result.stderr
                self._result = result
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        with self._changed:
            if self._terminated:
                raise TerminatedError
            self._stdout += data
            self._changed.notify_all()

    def receive(self, timeout_s: float) -> tuple[bytes, bytes, Result | None] | None:
        """New output, with the result if it is the last; None if nothing came in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._stdout or self._result, timeout_s):
                return None
            stdout, stderr = bytes(self._stdout[:_SLICE]), self._stderr[:_SLICE]
            del self._stdout[:_SLICE]
            self._stderr = self._stderr[_SLICE:]
            left = self._stdout or self._stderr
            return stdout, stderr, None if left else self._result

    def terminate(self) -> None:
        """End the command. Its client sees a killed process at once; the thread ends at its next output."""
        with self._changed:
            self._terminated = True
            if self._result is None:
                self._result = Result(exit_code=1)
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the command."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class Shells:
    """The open shells of the machine."""

    def __init__(self, guest: Guest, observations: Observations) -> None:
        self._guest = guest
        self._observations = observations
        self._lock = threading.Lock()
        self._shells: dict[str, dict[str, _Command]] = {}
        self._closed: set[str] = set()

    def answer(self, request: Request) -> Answer:
        """Answer a request."""
        if request.resource != envelope.CMD_SHELL:
            self._observations.add_fault(f"a shell of an unknown type was requested: {request.resource!r}")
            return _refusal(request, envelope.NO_RESOURCE)
        if request.action is Action.CREATE:
            return self._create(request)
        with self._lock:
            commands = self._shells.get(request.shell_id)
            # After a restart clients still tidy up shells that are gone.
            known = commands is not None or request.shell_id in self._closed
        if not known:
            self._observations.add_fault(
                f"{request.action.name} names shell {request.shell_id!r}, which was never opened"
            )
        if commands is None:
            return _refusal(request, envelope.NO_SHELL)
        if request.action is Action.DELETE:
            return self._delete(request)
        if request.action is Action.COMMAND:
            return self._start(request, commands)
        command = commands.get(request.command_id)
        if command is None:
            self._observations.add_fault(f"{request.action.name} names a command that the shell does not have")
            return _refusal(request, envelope.NO_COMMAND)
        if request.action is Action.RECEIVE:
            return _receive(request, command)
        if request.action is Action.SEND:
            self._observations.add_fault("a command was sent standard input; nothing that a tree sends reads any")
            return _refusal(request, envelope.NO_INPUT)
        command.terminate()
        return Answer(envelope.signalled(request))

    def _create(self, request: Request) -> Answer:
        shell_id = str(uuid.uuid4()).upper()
        with self._lock:
            self._shells[shell_id] = {}
        self._observations.add_cost(Cost(shells=1))
        return Answer(envelope.created(request, shell_id))

    def _delete(self, request: Request) -> Answer:
        with self._lock:
            commands = self._shells.pop(request.shell_id, {})
            self._closed.add(request.shell_id)
        for command in commands.values():
            command.terminate()
        return Answer(envelope.deleted(request))

    def _start(self, request: Request, commands: dict[str, _Command]) -> Answer:
        with self._lock:
            # After a restart nothing may run that it did not end.
            if self._shells.get(request.shell_id) is not commands:
                return _refusal(request, envelope.NO_SHELL)
            command = _Command(request.command, self._guest, self._observations)
            commands[command.id] = command
        self._observations.add_cost(Cost(commands=1))
        return Answer(envelope.started(request, command.id))

    def drop(self) -> list[str]:
        """Drop all shells and end their commands. Returns the commands that did not end."""
        with self._lock:
            running = [command for commands in self._shells.values() for command in commands.values()]
            self._closed.update(self._shells)
            self._shells.clear()
        for command in running:
            command.terminate()
        return [command.id for command in running if not command.join(JOIN_S)]


def _receive(request: Request, command: _Command) -> Answer:
    came = command.receive(min(request.timeout_s, _LONGEST_WAIT_S))
    if came is None:
        return _refusal(request, envelope.TIMED_OUT)
    stdout, stderr, result = came
    body = envelope.received(
        request, stdout=stdout, stderr=stderr, exit_code=None if result is None else result.exit_code
    )
    return Answer(body, restarts=result is not None and result.restarts)


def _refusal(request: Request, fault: Fault) -> Answer:
    return Answer(envelope.refused(request.message_id, fault), ok=False)
