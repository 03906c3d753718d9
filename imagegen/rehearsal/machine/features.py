"""Windows features: those of the release, their states, and the restarts that some of them need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.rehearsal.machine.registry import Registry

SERVICING = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing"
REBOOT_PENDING = SERVICING + r"\RebootPending"

# The optional features of Hyper-V, by the names of a Windows Server: below the first are a part that needs the
# hypervisor to run and one that does not. DISM changes them, and does not look at the processor.
HYPER_V: Final = "Microsoft-Hyper-V"
HYPERVISOR: Final = "Microsoft-Hyper-V-Online"
_CHILDREN: Final = ("Microsoft-Hyper-V-Offline", HYPERVISOR)
ENABLED: Final = "Enabled"
_SETTLED: Final = {"Enable Pending": ENABLED, "Disable Pending": "Disabled"}


class Features:
    """All features of the release, with their states."""

    def __init__(self, registry: Registry, states: Mapping[str, str], needing_restart: Iterable[str]) -> None:
        self._registry = registry
        self._states = {name.lower(): state for name, state in states.items()}
        self._needing_restart = {name.lower() for name in needing_restart}
        self.nests = True
        """Whether the processor shows that a hypervisor can start."""

    def state(self, name: str) -> str:
        """Installed, Available, Removed or InstallPending."""
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
        if state != "Available":
            return False
        restart = name.lower() in self._needing_restart
        self._states[name.lower()] = "InstallPending" if restart else "Installed"
        if restart:
            self._registry.make_key(REBOOT_PENDING)
        return restart

    def restarted(self) -> None:
        pending = {name: "Installed" for name, state in self._states.items() if state == "InstallPending"}
        self._states |= pending


class OptionalFeatures:
    """The optional features of Hyper-V and their states. Each change needs a restart."""

    def __init__(self) -> None:
        self._states = dict.fromkeys((HYPER_V, *_CHILDREN), "Disabled")

    def state(self, name: str) -> str:
        return self._states[name]

    def write(self, name: str, state: str) -> None:
        self._states[name] = state

    def enable(self, name: str) -> None:
        """Enable a feature with its parent. A parent brings its children."""
        group = (HYPER_V, *_CHILDREN) if name == HYPER_V else (HYPER_V, name)
        self._states |= {one: "Enable Pending" for one in group if self._states[one] != ENABLED}

    def disable(self, name: str) -> None:
        """Disable a feature. Without a parent its children cannot be."""
        group = (name, *_CHILDREN) if name == HYPER_V else (name,)
        self._states |= {one: "Disable Pending" for one in group if self._states[one] != "Disabled"}

    def restarted(self) -> None:
        self._states = {name: _SETTLED.get(state, state) for name, state in self._states.items()}
