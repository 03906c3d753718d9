r"""The service manager. Its records are registry keys under HKLM:\SYSTEM\CurrentControlSet\Services.

A service runs only while the files of its programs exist.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.programs import check_can_run, make_at_start, programs
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imagegen.rehearsal.machine.features import Features
    from imagegen.rehearsal.machine.files import Files
    from imagegen.rehearsal.machine.registry import Registry

RECORDS = r"HKLM:\SYSTEM\CurrentControlSet\Services"
BOOT, SYSTEM, AUTOMATIC, MANUAL, DISABLED = range(5)
OWN_PROCESS = 16
RESTART_SERVICE = 1
# SERVICE_FAILURE_ACTIONS in the registry: reset period, two unused offsets, count, offset of the actions
# (always 20), then a type and a delay in milliseconds for each.
FAILURE_HEADER = struct.Struct("<5I")
FAILURE_ACTION = struct.Struct("<2I")


@dataclasses.dataclass(frozen=True)
class FailureActions:
    """The actions when a service dies: (type, delay in ms) for the first, second, ... failure."""

    reset_s: int
    actions: tuple[tuple[int, int], ...]

    def pack(self) -> bytes:
        header = FAILURE_HEADER.pack(self.reset_s, 0, 0, len(self.actions), FAILURE_HEADER.size)
        return header + b"".join(FAILURE_ACTION.pack(*action) for action in self.actions)

    @classmethod
    def unpack(cls, data: bytes) -> FailureActions | None:
        """Parse the structure. None for other bytes."""
        try:
            reset_s, _, _, count, offset = FAILURE_HEADER.unpack_from(data)
            actions = [FAILURE_ACTION.unpack_from(data, offset + FAILURE_ACTION.size * at) for at in range(count)]
        except struct.error:
            return None
        return cls(reset_s, tuple((kind, delay_ms) for kind, delay_ms in actions))


class Services:
    """The services: their records in the registry, and which of them run."""

    def __init__(self, files: Files, registry: Registry, features: Features) -> None:
        self._files = files
        self._registry = registry
        self._features = features
        self._running: set[str] = set()
        self.on_start: dict[str, Callable[[], None]] = {}
        """What a service does once it was started, by its name in lower case. A machine's copy has none."""

    @staticmethod
    def key(name: str) -> str:
        return f"{RECORDS}\\{name}"

    def names(self) -> list[str]:
        return [name for name in self._registry.subkeys(RECORDS) if self.exists(name)]

    def exists(self, name: str) -> bool:
        """A key without ImagePath is not a service: settings may be written before the service is installed."""
        return self._registry.value(self.key(name), "ImagePath") is not None

    def command(self, name: str) -> str:
        return self._registry.text(self.key(name), "ImagePath") or ""

    def start_type(self, name: str) -> int:
        start = self._registry.number(self.key(name), "Start")
        return DISABLED if start is None else start

    def depends_on(self, name: str) -> tuple[str, ...]:
        value = self._registry.value(self.key(name), "DependOnService")
        return value.data if value and isinstance(value.data, tuple) else ()

    def failure_actions(self, name: str) -> FailureActions | None:
        value = self._registry.value(self.key(name), "FailureActions")
        return FailureActions.unpack(value.data) if value and isinstance(value.data, bytes) else None

    def is_running(self, name: str) -> bool:
        return name.lower() in self._running and self.exists(name) and self._programs_are_there(name)

    def programs_in_use(self) -> dict[str, list[str]]:
        """Running services by the path of each program. These files cannot be replaced or deleted."""
        users: dict[str, list[str]] = {}
        for name in self.names():
            if self.is_running(name):
                for program in programs(self._files, self.command(name)):
                    users.setdefault(fold(program), []).append(name)
        return users

    def create(self, name: str, command: str, display_name: str, start: int, *, depends_on: Iterable[str] = ()) -> None:
        """Make a service. Its program may be missing, but then the service cannot start."""
        if self.exists(name):
            raise RefusedByWindows(f"service {name} exists already (error 1073)")
        key = self.key(name)
        self._registry.make_key(key)
        self._registry.write(key, "ImagePath", Value("ExpandString", command))
        self._registry.write(key, "DisplayName", Value("String", display_name))
        self._registry.write(key, "Start", Value("DWord", start))
        self._registry.write(key, "Type", Value("DWord", OWN_PROCESS))
        self._registry.write(key, "ObjectName", Value("String", "LocalSystem"))
        if tuple(depends_on):
            self._registry.write(key, "DependOnService", Value("MultiString", tuple(depends_on)))

    def configure(self, name: str, value_name: str, value: Value) -> None:
        self._need(name)
        self._registry.write(self.key(name), value_name, value)

    def start(self, name: str) -> None:
        self._start(name, ())

    def _start(self, name: str, waiting: tuple[str, ...]) -> None:
        self._need(name)
        if self.is_running(name):
            return
        if self.start_type(name) == DISABLED:
            raise RefusedByWindows(f"service {name} cannot be started: it is disabled (error 1058)")
        if name.lower() in waiting:
            raise RefusedByWindows(f"service {name} cannot be started: it depends on itself (error 1059)")
        for other in self.depends_on(name):
            if not self.exists(other):
                raise RefusedByWindows(
                    f"service {name} cannot be started: it depends on {other}, which does not exist (error 1075)"
                )
            try:
                self._start(other, (*waiting, name.lower()))
            except RefusedByWindows as refusal:
                raise RefusedByWindows(f"service {name} cannot be started (error 1068): {refusal}") from refusal
        try:
            check_can_run(self._files, self._features, self.command(name))
        except RefusedByWindows as refusal:
            raise RefusedByWindows(f"service {name} cannot be started: {refusal}") from refusal
        make_at_start(self._files, self.command(name))
        self._running.add(name.lower())
        if act := self.on_start.get(name.lower()):
            act()

    def stop(self, name: str) -> None:
        """Stop a service and those that depend on it, as Stop-Service -Force does."""
        self._need(name)
        self._running.discard(name.lower())
        for other in self.names():
            if self.is_running(other) and name.lower() in map(str.lower, self.depends_on(other)):
                self.stop(other)

    def remove(self, name: str) -> None:
        self._need(name)
        self._running.discard(name.lower())
        self._registry.remove_key(self.key(name))

    def restarted(self) -> None:
        """Start the automatic services in the order of their start types. A failure is only logged."""
        self._running.clear()
        for name in sorted(self.names(), key=self.start_type):
            if self.start_type(name) <= AUTOMATIC:
                try:
                    self.start(name)
                except RefusedByWindows:
                    continue  # Windows only logs it and continues to boot

    def _need(self, name: str) -> None:
        if not self.exists(name):
            raise RefusedByWindows(f"there is no service {name} (error 1060)")

    def _programs_are_there(self, name: str) -> bool:
        try:
            return all(self._files.is_file(program) for program in programs(self._files, self.command(name)))
        except RefusedByWindows:
            return False  # the ImagePath names no program
