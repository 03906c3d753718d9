"""A folder on the PATH of the model machine. PATH is read and written unexpanded and keeps its type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.windows import ENVIRONMENT

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Path


def _folded(entry: str) -> str:
    return entry.strip().rstrip("\\").lower()


def get(machine: Machine, wanted: Path) -> Facts | None:
    for entry in (machine.registry.text(ENVIRONMENT, "Path") or "").split(";"):
        if _folded(entry) == _folded(wanted.entry):
            return {"entry": entry.strip()}
    return None


def test(_machine: Machine, wanted: Path, facts: Facts | None) -> list[str]:
    return [] if facts else [f"{wanted.entry} is not on the PATH"]


def put(machine: Machine, wanted: Path, _supplies: Supplies) -> bool:
    value = machine.registry.value(ENVIRONMENT, "Path")
    before = (machine.registry.text(ENVIRONMENT, "Path") or "").rstrip(";")
    text = ";".join(part for part in (before, wanted.entry) if part)
    machine.registry.write(ENVIRONMENT, "Path", Value(value.type if value else "ExpandString", text))
    return False
