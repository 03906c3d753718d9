"""A machine-wide environment variable of the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.windows import ENVIRONMENT

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.resources.kinds import Environment


def get(machine: Machine, wanted: Environment) -> Facts | None:
    value = machine.registry.value(ENVIRONMENT, wanted.name)
    return {"value": str(value.data)} if value else None


def test(_machine: Machine, wanted: Environment, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no variable {wanted.name}"]
    return [] if facts["value"] == wanted.value else [f"value is '{facts['value']}', not '{wanted.value}'"]


def put(machine: Machine, wanted: Environment, _supplies: Supplies) -> bool:
    kind = "ExpandString" if "%" in wanted.value else "String"
    machine.registry.write(ENVIRONMENT, wanted.name, Value(kind, wanted.value))
    return False
