"""Windows' optional features of Hyper-V, as DISM shows and changes them. It does not look at the processor.

The names and their order are those of a Windows Server: below Microsoft-Hyper-V are a part that needs the hypervisor to
run and one that does not. Each change needs a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.features import REBOOT_PENDING
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.windows import Machine

HYPER_V: Final = "Microsoft-Hyper-V"
HYPERVISOR: Final = "Microsoft-Hyper-V-Online"
_CHILDREN: Final = ("Microsoft-Hyper-V-Offline", HYPERVISOR)
ENABLED: Final = "Enabled"
_SETTLED: Final = {"Enable Pending": ENABLED, "Disable Pending": "Disabled"}
# DISM's own exit code and message.
_RESTART_NEEDED: Final = 3010
_DONE: Final = "The operation completed successfully.\r\n"


class OptionalFeatures:
    """The features and their states."""

    def __init__(self) -> None:
        self._states = dict.fromkeys((HYPER_V, *_CHILDREN), "Disabled")

    def state(self, name: str) -> str:
        return self._states[self._find(name)]

    def write(self, name: str, state: str) -> None:
        self._states[self._find(name)] = state

    def _find(self, name: str) -> str:
        for known in self._states:
            if known.lower() == name.lower():
                return known
        raise RefusedByWindows(f"Feature name {name} is unknown. (0x800f080c)")

    def enable(self, name: str, *, with_parents: bool) -> bool:
        """Whether a restart is due. A parent brings its children."""
        found = self._find(name)
        if found != HYPER_V and not with_parents and not self._is_on(HYPER_V):
            raise RefusedByWindows(f"One or several parent features of {found} are disabled. (0x800f0828)")
        group = (HYPER_V, *_CHILDREN) if found == HYPER_V else (HYPER_V, found)
        changed = [one for one in group if not self._is_on(one)]
        self._states |= dict.fromkeys(changed, "Enable Pending")
        return bool(changed)

    def disable(self, name: str) -> bool:
        """Whether a restart is due. Without a parent its children cannot be."""
        found = self._find(name)
        changed = [one for one in ((found, *_CHILDREN) if found == HYPER_V else (found,)) if self._is_on(one)]
        self._states |= dict.fromkeys(changed, "Disable Pending")
        return bool(changed)

    def _is_on(self, name: str) -> bool:
        return self._states[name] in (ENABLED, "Enable Pending")

    def restarted(self) -> None:
        self._states = {name: _SETTLED.get(state, state) for name, state in self._states.items()}


def show(machine: Machine, given: Mapping[str, str]) -> str:
    state = machine.optional_features.state(given["feature"])
    return f"\r\nFeature Information:\r\n\r\nFeature Name : {given['feature']}\r\nState : {state}\r\n\r\n{_DONE}"


def enable(machine: Machine, given: Mapping[str, str]) -> tuple[int, str]:
    return _end(machine, due=machine.optional_features.enable(given["feature"], with_parents=bool(given["all"])))


def disable(machine: Machine, given: Mapping[str, str]) -> tuple[int, str]:
    return _end(machine, due=machine.optional_features.disable(given["feature"]))


def _end(machine: Machine, *, due: bool) -> tuple[int, str]:
    if not due:
        return 0, _DONE
    machine.registry.make_key(REBOOT_PENDING)
    return _RESTART_NEEDED, _DONE


_OPTIONS: Final = "/online /english"
_NAME: Final = r"/featurename:(?P<feature>[a-z0-9-]+)"
FORMS: Final = (
    (rf"{_OPTIONS} /get-featureinfo {_NAME}", show),
    (rf"{_OPTIONS} /norestart /enable-feature {_NAME}(?P<all> /all)?", enable),
    (rf"{_OPTIONS} /norestart /disable-feature {_NAME}", disable),
)
