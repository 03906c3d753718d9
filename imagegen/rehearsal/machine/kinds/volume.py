"""A drive of the model machine that uses all the space of its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.volume import SMALLEST_STEP

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Volume


def get(machine: Machine, _wanted: Volume) -> Facts | None:
    return {"size": machine.volume.size, "largest": machine.volume.largest}


def test(_machine: Machine, wanted: Volume, facts: Facts | None) -> list[str]:
    size, largest = (facts["size"], facts["largest"]) if facts else (0, 0)
    if largest - size < SMALLEST_STEP:
        return []
    return [f"drive {wanted.drive} has {size} bytes, and there is room for {largest}"]


def put(machine: Machine, _wanted: Volume, _supplies: Supplies) -> bool:
    machine.volume.extend()
    return False
