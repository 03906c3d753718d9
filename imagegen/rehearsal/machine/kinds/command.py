"""A program that changes a setting of Windows, on the model machine. Only some programs are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.commands import run_program
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Command

_DONE = (0,)


def get(machine: Machine, wanted: Command) -> Facts | None:
    output = _run(machine, wanted.program, wanted.unless.arguments, _DONE)
    return {"matches": [re.search(one, output) is not None for one in wanted.unless.matches]}


def test(_machine: Machine, wanted: Command, facts: Facts | None) -> list[str]:
    found = facts["matches"] if facts else []
    asked = f"'{wanted.program} {wanted.unless.arguments}'"
    return [
        f"{wanted.name}: the output of {asked} does not match {one}"
        for one, matches in zip(wanted.unless.matches, found, strict=True)
        if not matches
    ]


def put(machine: Machine, wanted: Command, _supplies: Supplies) -> bool:
    _run(machine, wanted.program, wanted.arguments, wanted.good_exit_codes)
    return False


def _run(machine: Machine, program: str, arguments: str, good: Iterable[int]) -> str:
    """The output, without blanks around it."""
    code, output = run_program(machine, program, arguments)
    if code not in good:
        raise RefusedByWindows(f"{program} ended with {code}: {output.strip()}")
    return output.strip()
