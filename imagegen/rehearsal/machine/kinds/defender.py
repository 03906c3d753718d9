"""A program whose file access Defender does not scan. Without Defender nothing needs to be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.resources.kinds import Defender


_STARTING_S = 300


def get(machine: Machine, wanted: Defender) -> Facts | None:
    defender = machine.defender
    machine.wait_until(lambda: defender.is_absent or defender.answers, _STARTING_S)
    if defender.is_absent:
        return {"absent": True}
    if not defender.answers:
        return {"unavailable": "service WinDefend is not running (0x800106ba)"}
    for process in defender.excluded_processes:
        if process.lower() == wanted.process.lower():
            return {"process": process}
    return None


def test(_machine: Machine, wanted: Defender, facts: Facts | None) -> list[str]:
    return [] if facts else [f"Defender scans the files that {wanted.process} opens"]


def put(machine: Machine, wanted: Defender, _supplies: Supplies) -> bool:
    machine.defender.exclude_process(wanted.process)
    return False
