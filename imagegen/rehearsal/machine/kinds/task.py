"""A scheduled task that runs a program as SYSTEM again and again, on the model machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.tasks import AT_START, SERVICE, Task

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps import kinds

# The facts that must be true, each with the reason where it is not.
_FLAGS = {
    "enabled": "it is not enabled",
    "unconditional": "a setting can keep it from running, or from being ended",
}


# As the engine writes them.
_ORDER = ("triggers", "actions", "every_s", "repeats_for_s", "delay_s", "limit_s", "start", "ends", "program")


def get(machine: Machine, wanted: kinds.Task) -> Facts | None:
    _need_service(machine)
    task = machine.tasks.task(wanted.name)
    return None if task is None else _facts(task)


def test(_machine: Machine, wanted: kinds.Task, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no task {wanted.name}"]
    expected = {name: value for name, value in _facts(_planned(wanted)).items() if name not in _FLAGS}
    reasons = [f"{name} is {facts[name]}, not {value}" for name, value in expected.items() if facts[name] != value]
    return reasons + [reason for name, reason in _FLAGS.items() if not facts[name]]


def put(machine: Machine, wanted: kinds.Task, _supplies: Supplies) -> bool:
    _need_service(machine)
    machine.tasks.register(machine, _planned(wanted))
    return False


def _planned(wanted: kinds.Task) -> Task:
    task = Task(wanted.name, wanted.program, wanted.arguments, wanted.every_s, wanted.limit_s)
    return dataclasses.replace(task, triggers=(AT_START,), start="") if wanted.every_s is None else task


def _facts(task: Task) -> Facts:
    stored = {name: value for name, value in dataclasses.asdict(task).items() if name not in ("name", "settings")}
    lists = {"triggers": ", ".join(task.triggers), "actions": ", ".join(task.actions)}
    return {**dict.fromkeys(_ORDER), **stored, **lists, "unconditional": not task.hindrances}


def _need_service(machine: Machine) -> None:
    if not machine.services.is_running(SERVICE):
        raise RefusedByWindows(f"the task scheduler does not answer: service {SERVICE} is not running")
