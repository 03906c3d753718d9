"""Defender's exclusions. A Windows may be without Defender."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.services import Services

SERVICE = "WinDefend"


class Defender:
    """The programs whose file access is not scanned, and the files and folders that are not scanned."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.processes: list[str] = []
        self.paths: list[str] = []

    @property
    def is_absent(self) -> bool:
        return not self._services.exists(SERVICE)

    @property
    def answers(self) -> bool:
        return self._services.is_running(SERVICE)
