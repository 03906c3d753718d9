"""A folder on the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Directory


def get(machine: Machine, wanted: Directory) -> Facts | None:
    return {"exists": True, "open": wanted.open} if machine.files.is_folder(wanted.path) else None


def test(_machine: Machine, wanted: Directory, facts: Facts | None) -> list[str]:
    return [] if facts else [f"there is no folder {wanted.path}"]


def put(machine: Machine, wanted: Directory, _supplies: Supplies) -> bool:
    machine.files.make_folder(wanted.path)
    return False
