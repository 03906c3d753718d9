"""Carries out cloudbase-init's calls on the model machine: files, registry, clock and console.

`os_layer.py` has those of cloudbase-init's own layer for the operating system.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import Process, UnknownCommandError
from imagegen.rehearsal.boot.programs import variables_of
from imagegen.rehearsal.machine.files import parts
from imagegen.rehearsal.machine.refusal import NoSuchFile, RefusedByWindows
from imagegen.rehearsal.machine.registry import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imagegen.rehearsal.boot.model import Ended, Platform
    from imagegen.rehearsal.machine.registry import Data
    from imagegen.rehearsal.machine.windows import Machine


@dataclasses.dataclass
class Surroundings:
    """What cloudbase-init finds on a machine and around it, and what it did to the whole machine."""

    machine: Machine
    platform: Platform
    run_program: Callable[[Sequence[str], bool, str], Ended]
    """Runs a command line on the machine, with the shell or without it, as an account."""
    user: str = "SYSTEM"
    """The account that it runs as."""
    console: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """What was written to each serial port."""
    reboots: bool = False
    """Whether it asked for a restart, which comes when it has ended."""
    unknown: list[str] = dataclasses.field(default_factory=list)
    """The calls whose effect on Windows the rehearsal does not know."""
    version: str = ""
    """The version of cloudbase-init that ran."""
    crash: str = ""
    """The error that ended it. Empty if it came to its end."""


class SystemCalls:
    """The calls of `windows.py`. Paths are whole; those of another drive than C: are of the cloud's drives."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._machine = around.machine
        self._files = around.machine.files
        self._drives: Mapping[str, Mapping[str, bytes]] = around.platform.drives

    def started(self, version: str) -> None:
        self._around.version = version

    def report_unknown(self, what: str) -> None:
        self._around.unknown.append(f"the rehearsal does not know {what}")

    def report_crash(self, error: str) -> None:
        self._around.crash = error

    def environment(self) -> dict[str, str]:
        return variables_of(Process(self._machine, ())).all()

    def host_path(self, path: str) -> str:
        """Where the host keeps a file of the machine. It must be there: programs of Windows make no folder for it."""
        if not self._files.exists(path):
            raise NoSuchFile(f"cannot find {path}")
        return str(self._files.host_path(path))

    def host_name(self) -> str:
        return self._machine.host_name

    def pass_time(self, seconds: float) -> None:
        self._machine.wait_until(lambda: False, seconds)

    def now(self) -> float:
        return self._machine.up_s

    def write_serial(self, port: str, data: bytes) -> None:
        self._around.console[port] = self._around.console.get(port, b"") + data

    def exists(self, path: str) -> bool:
        drive = self._drive(path)
        if drive is None:
            return self._files.exists(path)
        inside = self._inside(path)
        # A letter without a drive has no root either.
        if not inside:
            return parts(path)[0] in self._drives
        return any(name == inside or name.startswith(f"{inside}\\") for name in drive)

    def is_file(self, path: str) -> bool:
        drive = self._drive(path)
        return self._files.is_file(path) if drive is None else self._inside(path) in drive

    def is_folder(self, path: str) -> bool:
        return (
            self._files.is_folder(path) if self._drive(path) is None else self.exists(path) and not self.is_file(path)
        )

    def read_file(self, path: str) -> bytes:
        drive = self._drive(path)
        if drive is None:
            return self._files.read(path)
        if self._inside(path) not in drive:
            raise NoSuchFile(f"cannot find file {path}")
        return drive[self._inside(path)]

    def write_file(self, path: str, data: bytes) -> None:
        self._need_own_disk(path)
        self._files.write(path, data)

    def make_folder(self, path: str) -> None:
        self._need_own_disk(path)
        self._files.make_folder(path)

    def list_folder(self, path: str) -> list[str]:
        self._need_own_disk(path)
        return self._files.names(path)

    def remove_file(self, path: str) -> None:
        if not self._files.is_file(path):
            raise NoSuchFile(f"cannot find file {path}")
        self._files.remove(path)

    def remove_folder(self, path: str) -> None:
        self._files.remove(path)

    def set_read_only(self, path: str, on: bool) -> None:
        self._files.set_read_only(path, on=on)

    def make_key(self, key: str) -> None:
        self._machine.registry.make_key(key)

    def has_key(self, key: str) -> bool:
        return self._machine.registry.has_key(key)

    def read_value(self, key: str, name: str) -> Data | None:
        value = self._machine.registry.value(key, name)
        return value.data if value else None

    def write_value(self, key: str, name: str, kind: str, data: Data) -> None:
        self._machine.registry.write(key, name, Value(kind, data))

    def dhcp_options(self, server: str | None, _requested: Sequence[int]) -> dict[str, bytes] | None:  # noqa: ARG002
        return {str(number): data for number, data in self._around.platform.dhcp_options.items()}

    def extend_volumes(self, indexes: Sequence[int] | None) -> None:
        """C: fills the disk already: the model's disk has no size."""
        if indexes:
            raise UnknownCommandError(f"the rehearsal does not know the volumes {indexes}, which are to be extended")

    def _drive(self, path: str) -> Mapping[str, bytes] | None:
        """The drive of the cloud that a path names, with its paths in lower case. None for C:."""
        letter = parts(path)[0]
        if letter == "C:":
            return None
        return {name.lower(): data for name, data in self._drives.get(letter, {}).items()}

    def _inside(self, path: str) -> str:
        return "\\".join(parts(path)[1:]).lower()

    def _need_own_disk(self, path: str) -> None:
        if self._drive(path) is not None:
            raise RefusedByWindows(f"access to {path} is denied: drive {parts(path)[0]} is read-only")
