"""Defender's preferences, which can be used only while its service runs. A Windows may be without Defender."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import DISABLED

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.services import Services


SERVICE = "WinDefend"


class Defender:
    """The programs whose file access is not scanned, and the files and folders that are not scanned."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._processes: list[str] = []
        self._paths: list[str] = []

    @property
    def is_absent(self) -> bool:
        """Whether Defender never scans: its service was removed, or it is disabled and stopped."""
        if self._services.is_running(SERVICE):
            return False
        return not self._services.exists(SERVICE) or self._services.start_type(SERVICE) == DISABLED

    @property
    def answers(self) -> bool:
        return self._services.is_running(SERVICE)

    @property
    def excluded_processes(self) -> tuple[str, ...]:
        self._need_service()
        return tuple(self._processes)

    @property
    def excluded_paths(self) -> tuple[str, ...]:
        self._need_service()
        return tuple(self._paths)

    def exclude_path(self, path: str) -> None:
        self._need_service()
        if path.lower() not in map(str.lower, self._paths):
            self._paths.append(path)

    def exclude_process(self, process: str) -> None:
        self._need_service()
        if process.lower() not in map(str.lower, self._processes):
            self._processes.append(process)

    def include_process(self, process: str) -> None:
        self._need_service()
        self._processes = [known for known in self._processes if known.lower() != process.lower()]

    def _need_service(self) -> None:
        if not self.answers:
            raise RefusedByWindows("Defender does not answer: service WinDefend is not running (0x800106ba)")
