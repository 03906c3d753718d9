"""What Defender does not scan: the files that a program opens, or a path. Without Defender nothing needs to be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Defender


_STARTING_S = 300


def get(machine: Machine, wanted: Defender) -> Facts | None:
    defender = machine.defender
    machine.wait_until(lambda: defender.is_absent or defender.answers, _STARTING_S)
    if defender.is_absent:
        return {"absent": True}
    if not defender.answers:
        return {"unavailable": "service WinDefend is not running (0x800106ba)"}
    name = "process" if wanted.process else "path"
    for known in defender.excluded_processes if wanted.process else defender.excluded_paths:
        if known.lower() == wanted.label.lower():
            return {name: known}
    return None


def test(_machine: Machine, wanted: Defender, facts: Facts | None) -> list[str]:
    if facts:
        return []
    return [
        f"Defender scans the files that {wanted.process} opens" if wanted.process else f"Defender scans {wanted.path}"
    ]


def put(machine: Machine, wanted: Defender, _supplies: Supplies) -> bool:
    if wanted.process:
        machine.defender.exclude_process(wanted.process)
    else:
        machine.defender.exclude_path(wanted.label)
    return False
