"""A service of the model machine whose program is nssm: it answers the service manager, and starts another program
until that stays up. nssm.cc says what its values in the registry mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.programs import words

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

# How long nssm waits at least before it starts its program again.
_THROTTLE_S = 1.5


class NssmError(Exception):
    """The program ended by itself, with these words."""


class Nssm:
    """One such service. A subclass is the program."""

    def __init__(self, machine: Machine, service: str) -> None:
        self.machine = machine
        self.service = service
        self.ends: list[str] = []
        """Why the program ended."""
        self._is_up = False
        self._turn = 0
        machine.services.slow_programs[service.lower()] = self

    def run(self, program: str, arguments: dict[str, str], environment: dict[str, str], /) -> None:
        """Start the program. It stays up unless it raises an error."""
        raise NotImplementedError

    @property
    def is_serving(self) -> bool:
        return self._is_up

    def begin(self) -> None:
        command = words(self.machine.services.command(self.service))
        if len(command) != 1 or not command[0].lower().endswith("\\nssm.exe"):
            raise UnknownCommandError(f"service {self.service} runs {command[:1]}, of which the rehearsal has no model")
        self.machine.services.answered(self.service)
        self._turn += 1
        self._try(self._turn)

    def end(self) -> None:
        """The service was stopped."""
        self._turn += 1
        self._is_up = False

    def _try(self, turn: int) -> None:
        if turn != self._turn:
            return
        key = rf"{self.machine.services.key(self.service)}\Parameters"
        registry = self.machine.registry
        program = registry.text(key, "Application") or ""
        given = [word.lstrip("-").partition("=") for word in words(registry.text(key, "AppParameters") or "")]
        extra = registry.value(key, "AppEnvironmentExtra")
        lines = extra.data if extra is not None and isinstance(extra.data, tuple) else ()
        environment = dict(line.split("=", 1) for line in lines)
        try:
            if not self.machine.files.is_file(program):
                raise NssmError(f"nssm cannot start {program}")
            self.run(program, {name: value if equals else "true" for name, equals, value in given}, environment)
        except NssmError as error:
            self.ends.append(str(error))
            self._log(registry.text(key, "AppStdout") or "", str(error))
            delay_s = (registry.number(key, "AppRestartDelay") or 0) / 1000
            self.machine.later(max(_THROTTLE_S, delay_s), lambda: self._try(turn))
            return
        self._is_up = True
        self._log(registry.text(key, "AppStdout") or "", f"{self.service} is up")

    def _log(self, path: str, line: str) -> None:
        if path:
            files = self.machine.files
            written = files.read(path) if files.is_file(path) else b""
            files.write(path, written + f"{line}\n".encode())
