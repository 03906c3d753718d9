"""Tests every resource again after generalise, and finds what the sealing undid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.converge import inspect
from imagegen.rehearsal.machine.plan import Item, items_of, read_plan
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.windows import Machine


def find_sealing_losses(machine: Machine, plan: bytes) -> list[str]:
    """A fault for each resource of plan.json that is no longer as planned, or whose program or folder is gone."""
    return [
        f"sealing undid {item.id}: {'; '.join(reasons)}"
        for item in items_of(read_plan(plan))
        if item.resource.outlives_sealing and (reasons := list(_reasons(machine, item)))
    ]


def _reasons(machine: Machine, item: Item) -> Iterator[str]:
    try:
        _, reasons = inspect(machine, item)
    except RefusedByWindows as refusal:
        reasons = [str(refusal)]
    yield from reasons
    for path in item.resource.needs():
        if not machine.files.exists(path):
            yield f"{path} is gone"
