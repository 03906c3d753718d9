"""The agent in Amazon's Windows images: EC2Launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.clouds.aws.launch_agent import (
    ANSWER_FILE,
    ANSWERS,
    DATA,
    PROGRAM,
    RUN_ONCE,
    STATE,
    run_launch_agent,
    run_launch_program,
)
from imagegen.rehearsal.machine.agents import Agents
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import AUTOMATIC

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

_SERVICE = r"C:\Program Files\Amazon\EC2Launch\service\EC2LaunchService.exe"


def _check(machine: Machine) -> None:
    if not machine.files.is_file(PROGRAM):
        raise RefusedByWindows(f"there is no {PROGRAM}")


def _reset(machine: Machine) -> None:
    if machine.files.exists(RUN_ONCE):
        machine.files.remove(RUN_ONCE)


AGENTS: Final = Agents(
    services=(("Amazon EC2Launch", "Amazon EC2Launch", f'"{_SERVICE}"', AUTOMATIC, ()),),
    files=(PROGRAM, _SERVICE, RUN_ONCE),
    folders=(rf"{DATA}\config", STATE),
    check=_check,
    answer_file=ANSWER_FILE,
    answers=ANSWERS,
    reset=_reset,
    traces=(("the mark of the builder's first boot", RUN_ONCE.lower()),),
    programs={"ec2launch.exe": run_launch_program},
    run_at_boot=run_launch_agent,
)
