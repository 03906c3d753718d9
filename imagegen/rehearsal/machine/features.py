"""Windows features: those of the release, their states, and the restarts that some of them need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.rehearsal.machine.registry import Registry

SERVICING = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing"
REBOOT_PENDING = SERVICING + r"\RebootPending"


class Features:
    """All features of the release, with their states."""

    def __init__(self, registry: Registry, states: Mapping[str, str], needing_restart: Iterable[str]) -> None:
        self._registry = registry
        self._states = {name.lower(): state for name, state in states.items()}
        self._needing_restart = {name.lower() for name in needing_restart}
        self.nests = True
        """Whether the processor shows that a hypervisor can start."""

    def state(self, name: str) -> str:
        """Installed, Available, Removed, InstallPending or UninstallPending."""
        if name.lower() not in self._states:
            raise RefusedByWindows(f"this Windows has no feature {name}")
        return self._states[name.lower()]

    def is_installed(self, name: str) -> bool:
        return self._states.get(name.lower()) == "Installed"

    def install(self, name: str) -> bool:
        """Whether a restart is due."""
        state = self.state(name)
        if state == "Removed":
            raise RefusedByWindows(f"the source files of feature {name} could not be found (0x800f081f)")
        if state == "UninstallPending":
            raise RefusedByWindows(f"feature {name} is being removed: a restart must finish that first")
        if name.lower() == "hyper-v" and state == "Available" and not self.nests:
            raise RefusedByWindows(
                "A prerequisite check for the Hyper-V feature failed. 1. Hyper-V cannot be installed: The processor "
                "does not have required virtualization capabilities."
            )
        return self._settle(name, state, "Installed", "InstallPending")

    def _settle(self, name: str, state: str, done: str, pending: str) -> bool:
        if state == done:
            return False
        restart = name.lower() in self._needing_restart
        self._states[name.lower()] = pending if restart else done
        if restart:
            self._registry.make_key(REBOOT_PENDING)
        return restart

    def restarted(self) -> None:
        settled = {"InstallPending": "Installed", "UninstallPending": "Available"}
        self._states = {name: settled.get(state, state) for name, state in self._states.items()}
