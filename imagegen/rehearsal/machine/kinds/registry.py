"""A value under a registry key of the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.registry import Data, Value

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Registry


def _plain(data: Data) -> str | int | list[str] | list[int]:
    if isinstance(data, bytes):
        return [*data]
    return [*data] if isinstance(data, tuple) else data


def get(machine: Machine, wanted: Registry) -> Facts | None:
    value = machine.registry.value(wanted.key, wanted.name)
    return {"type": value.type, "data": _plain(value.data)} if value else None


def test(_machine: Machine, wanted: Registry, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no value {wanted.name}"]
    reasons = []
    if facts["type"] != wanted.type:
        reasons.append(f"type is {facts['type']}, not {wanted.type}")
    if facts["data"] != wanted.data:
        reasons.append(f"data is {facts['data']}, not {wanted.data}")
    return reasons


def put(machine: Machine, wanted: Registry, _supplies: Supplies) -> bool:
    data = tuple(wanted.data) if isinstance(wanted.data, list) else wanted.data
    machine.registry.make_key(wanted.key)
    machine.registry.write(wanted.key, wanted.name, Value(wanted.type, data))
    return False
