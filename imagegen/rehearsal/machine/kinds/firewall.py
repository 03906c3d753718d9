"""A firewall rule for one port, in every profile, on the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Firewall


def get(machine: Machine, wanted: Firewall) -> Facts | None:
    _need_service(machine)
    rule = machine.firewall.rule(wanted.name)
    if rule is None:
        return None
    return {
        "display_name": rule.display_name,
        "enabled": rule.enabled,
        "direction": rule.direction,
        "action": rule.action,
        "protocol": rule.protocol,
        "port": rule.port,
        "profile": rule.profile,
    }


def test(_machine: Machine, wanted: Firewall, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no rule {wanted.name}"]
    asked = wanted.model_dump(include={"display_name", "direction", "action", "protocol"})
    expected = {**asked, "port": str(wanted.port), "profile": "Any"}
    reasons = [] if facts["enabled"] else ["it is not enabled"]
    return reasons + [
        f"{name} is {facts[name]}, not {value}" for name, value in expected.items() if facts[name] != value
    ]


def put(machine: Machine, wanted: Firewall, _supplies: Supplies) -> bool:
    _need_service(machine)
    if machine.firewall.rule(wanted.name):
        machine.firewall.remove(wanted.name)
    machine.firewall.add(
        Rule(
            name=wanted.name,
            display_name=wanted.display_name,
            direction=wanted.direction,
            action=wanted.action,
            protocol=wanted.protocol,
            port=str(wanted.port),
        )
    )
    return False


def _need_service(machine: Machine) -> None:
    if not machine.services.is_running("mpssvc"):
        raise RefusedByWindows("the firewall does not answer: service mpssvc is not running")
