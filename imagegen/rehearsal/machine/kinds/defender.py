"""A program whose file access Defender does not scan. Without Defender nothing needs to be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.resources.kinds import Defender


def get(machine: Machine, wanted: Defender) -> Facts | None:
    if machine.defender.is_absent:
        return {"absent": True}
    for process in machine.defender.excluded_processes:
        if process.lower() == wanted.process.lower():
            return {"process": process}
    return None


def test(_machine: Machine, wanted: Defender, facts: Facts | None) -> list[str]:
    return [] if facts else [f"Defender scans the files that {wanted.process} opens"]


def put(machine: Machine, wanted: Defender, _supplies: Supplies) -> bool:
    machine.defender.exclude_process(wanted.process)
    return False
