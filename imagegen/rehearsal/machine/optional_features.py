"""Windows' optional features of Hyper-V, as DISM changes them. It does not look at the processor.

The names are those of a Windows Server: below Microsoft-Hyper-V are a part that needs the hypervisor to run and one
that does not. Each change needs a restart.
"""

from __future__ import annotations

from typing import Final

HYPER_V: Final = "Microsoft-Hyper-V"
HYPERVISOR: Final = "Microsoft-Hyper-V-Online"
_CHILDREN: Final = ("Microsoft-Hyper-V-Offline", HYPERVISOR)
ENABLED: Final = "Enabled"
_SETTLED: Final = {"Enable Pending": ENABLED, "Disable Pending": "Disabled"}


class OptionalFeatures:
    """The features and their states."""

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
