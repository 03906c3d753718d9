"""The settings of Windows that commands of the shipped steps change, as far as something reads them on the machine.
Every command is taken as run. That its words are right is judged with the plan."""

from __future__ import annotations

import ntpath
import re
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.ports import PROTOCOLS, PortRange
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.time_zone import write_time_zone
from imagegen.rehearsal.machine.triggers import write_triggers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine.windows import Machine

    # Gets the values of the form's groups.
    Act = Callable[[Machine, Mapping[str, str]], object]

POWER_PLANS: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes"
BALANCED: Final = "381b4222-f694-41f0-9685-ff5bb260df2e"


def apply_command(machine: Machine, program: str, arguments: str) -> None:
    """Change what a command changes, if it is one of those that are read later."""
    name, given = ntpath.basename(program).lower(), " ".join(words(arguments))
    for known, form, act in _FORMS:
        if known == name and (found := re.fullmatch(form, given, re.IGNORECASE)):
            act(machine, found.groupdict())


def _ports(given: Mapping[str, str]) -> tuple[str, PortRange]:
    return given["protocol"].lower(), PortRange(int(given["start"]), int(given["count"]))


def _set_plan(machine: Machine, given: Mapping[str, str]) -> None:
    machine.registry.write(POWER_PLANS, "ActivePowerScheme", Value("String", given["plan"].lower()))


def _set_zone(machine: Machine, given: Mapping[str, str]) -> None:
    write_time_zone(machine.registry, given["zone"])


def _set_dynamic(machine: Machine, given: Mapping[str, str]) -> None:
    machine.ports.set_dynamic(*_ports(given))


def _exclude(machine: Machine, given: Mapping[str, str]) -> None:
    machine.ports.exclude(*_ports(given))


def _enable(machine: Machine, given: Mapping[str, str]) -> None:
    machine.optional_features.enable(given["feature"])


def _disable(machine: Machine, given: Mapping[str, str]) -> None:
    machine.optional_features.disable(given["feature"])


def _delete_triggers(machine: Machine, given: Mapping[str, str]) -> None:
    write_triggers(machine, given["service"], ())


_PORTS: Final = (
    rf"protocol=(?P<protocol>{'|'.join(PROTOCOLS)}) startport=(?P<start>[0-9]+) numberofports=(?P<count>[0-9]+) "
    "store=persistent"
)
_FEATURE: Final = r"/featurename:(?P<feature>[a-z0-9-]+)(?: /all)?"
_FORMS: Final[tuple[tuple[str, str, Act], ...]] = (
    ("tzutil.exe", r"/s (?P<zone>.+)", _set_zone),
    ("powercfg.exe", r"/setactive (?P<plan>[0-9a-f-]{36})", _set_plan),
    ("netsh.exe", f"int ipv4 set dynamicportrange {_PORTS}", _set_dynamic),
    ("netsh.exe", f"int ipv4 add excludedportrange {_PORTS}", _exclude),
    ("dism.exe", f"/online /english /norestart /enable-feature {_FEATURE}", _enable),
    ("dism.exe", f"/online /english /norestart /disable-feature {_FEATURE}", _disable),
    ("sc.exe", r"triggerinfo (?P<service>\S+) delete", _delete_triggers),
)
