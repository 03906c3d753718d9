"""The agent in Amazon's Windows images: EC2Launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.agents import Agents
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import AUTOMATIC

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

_PROGRAMS = r"C:\Program Files\Amazon\EC2Launch"
_PROGRAM = rf"{_PROGRAMS}\EC2Launch.exe"
_SERVICE = rf"{_PROGRAMS}\service\EC2LaunchService.exe"
_STATE = r"C:\ProgramData\Amazon\EC2Launch\state"
_RUN_ONCE = rf"{_STATE}\.run-once"


def _check(machine: Machine) -> None:
    if not machine.files.is_file(_PROGRAM):
        raise RefusedByWindows(f"there is no {_PROGRAM}")


def _reset(machine: Machine) -> None:
    if machine.files.exists(_RUN_ONCE):
        machine.files.remove(_RUN_ONCE)


AGENTS: Final = Agents(
    services=(("Amazon EC2Launch", "Amazon EC2Launch", f'"{_SERVICE}"', AUTOMATIC, ()),),
    files=(_PROGRAM, _SERVICE, _RUN_ONCE),
    folders=(r"C:\ProgramData\Amazon\EC2Launch\config", _STATE),
    check=_check,
    reset=_reset,
)
