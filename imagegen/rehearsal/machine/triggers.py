"""The triggers that start and stop a service, in its registry key."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.rehearsal.machine.windows import Machine

START, STOP = 1, 2
_NETWORK, _DOMAIN = 2, 3


@dataclasses.dataclass(frozen=True)
class Trigger:
    """Windows' numbers for an event and for what it does."""

    event: int
    action: int


NETWORK_ON: Final = Trigger(_NETWORK, START)
NETWORK_OFF: Final = Trigger(_NETWORK, STOP)
DOMAIN_JOINED: Final = Trigger(_DOMAIN, START)
NOT_IN_A_DOMAIN: Final = Trigger(_DOMAIN, STOP)


def read_triggers(machine: Machine, service: str) -> list[Trigger]:
    key = _key(machine, service)
    numbers = machine.registry.subkeys(key) if machine.registry.has_key(key) else []
    return [
        Trigger(_number(machine, rf"{key}\{one}", "Type"), _number(machine, rf"{key}\{one}", "Action"))
        for one in numbers
    ]


def write_triggers(machine: Machine, service: str, triggers: Iterable[Trigger]) -> None:
    """A list of triggers replaces the one before."""
    key = _key(machine, service)
    if machine.registry.has_key(key):
        machine.registry.remove_key(key)
    for number, trigger in enumerate(triggers):
        machine.registry.make_key(rf"{key}\{number}")
        machine.registry.write(rf"{key}\{number}", "Type", Value("DWord", trigger.event))
        machine.registry.write(rf"{key}\{number}", "Action", Value("DWord", trigger.action))


def stop_outside_domain(machine: Machine) -> None:
    """What a start does to the services that must not run outside a domain, also to automatic ones."""
    for service in machine.services.names():
        if machine.services.is_running(service) and NOT_IN_A_DOMAIN in read_triggers(machine, service):
            machine.services.stop(service)


def _key(machine: Machine, service: str) -> str:
    if not machine.services.exists(service):
        raise RefusedByWindows(f"there is no service {service} (error 1060)")
    return rf"{machine.services.key(service)}\TriggerInfo"


def _number(machine: Machine, key: str, name: str) -> int:
    return machine.registry.number(key, name) or 0
