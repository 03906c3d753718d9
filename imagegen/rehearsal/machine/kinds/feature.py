"""A Windows Server feature on the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Feature


def get(machine: Machine, wanted: Feature) -> Facts | None:
    return {"state": machine.features.state(wanted.name)}


def test(machine: Machine, wanted: Feature, facts: Facts | None) -> list[str]:
    state = facts["state"] if facts else "not known"
    if state == "Installed":
        return []
    if state != "InstallPending":
        return [f"{wanted.name} is {state}"]
    return [] if machine.restart_pending() else [f"{wanted.name} is InstallPending, but no restart is pending"]


def put(machine: Machine, wanted: Feature, _supplies: Supplies) -> bool:
    return machine.features.install(wanted.name)
