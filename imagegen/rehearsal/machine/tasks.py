"""The task scheduler: tasks that run again and again."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.access import SYSTEM
from imagegen.rehearsal.machine.commands import run_program
from imagegen.rehearsal.machine.files import parts
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.rotation import rotate_logs
from imagegen.rehearsal.machine.script_policy import REFUSED, find_refusal
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imagegen.rehearsal.machine.windows import Machine

SERVICE = "Schedule"
AT_TIMES, AT_START = "TimeTrigger", "BootTrigger"
RUNS_PROGRAM = "Exec"
NO_SECOND = "IgnoreNew"
# A time that has passed: each run is a multiple of the interval after it.
START = "2020-01-01T00:00:00Z"
NORMAL_IO = 6
# The settings that can keep a task from running, or from being ended, and the value with which they do.
HINDRANCES = {
    "RunOnlyIfIdle": "true",
    "RunOnlyIfNetworkAvailable": "true",
    "AllowHardTerminate": "false",
    "DisallowStartIfOnBatteries": "true",
    "StopIfGoingOnBatteries": "true",
}
# Of them those that hinder where the task does not have them.
HINDERING_BY_DEFAULT = ("DisallowStartIfOnBatteries", "StopIfGoingOnBatteries")
# Results as Windows shows them: the program does not exist; PowerShell cannot find its script.
NO_PROGRAM = 0x80070002
NO_SCRIPT = 0xFFFD0000
# Compare rotation.py with a changed script before you take over its digest.
ROTATE_LOGS_SHA256 = "98d64f6070e3f28b7797ff21f66c0404d24dc6b7555d927d8541a5beb89716ad"
# What the scripts of the shipped steps do, with the digests of the bytes that do it. Scripts of other names do nothing
# here.
SCRIPTS: dict[str, tuple[str, Callable[[Machine, Sequence[str]], int]]] = {
    "rotate-logs.ps1": (ROTATE_LOGS_SHA256, rotate_logs)
}


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as Windows stores it. `triggers` and `actions` are the names of their XML elements, and `settings` has
    those of HINDRANCES."""

    name: str
    program: str
    arguments: str
    every_s: int | None
    limit_s: int
    account: str = SYSTEM
    triggers: tuple[str, ...] = (AT_TIMES,)
    start: str = START
    ends: str = ""
    delay_s: int = 0
    repeats_for_s: int | None = None
    actions: tuple[str, ...] = (RUNS_PROGRAM,)
    parallel: str = NO_SECOND
    priority: int = NORMAL_IO
    enabled: bool = True
    settings: tuple[tuple[str, str], ...] = tuple((name, "false") for name in HINDERING_BY_DEFAULT)

    @property
    def hindrances(self) -> tuple[str, ...]:
        """The names of the settings that hinder it."""
        given = {**{name: HINDRANCES[name] for name in HINDERING_BY_DEFAULT}, **dict(self.settings)}
        return tuple(name for name, value in HINDRANCES.items() if given.get(name) == value)


class Tasks:
    """The tasks by lower-case name, and the result of each one's last run."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._waiting: set[str] = set()
        self.results: dict[str, int] = {}

    def task(self, name: str) -> Task | None:
        return self._tasks.get(name.lower())

    def names(self) -> list[str]:
        return [task.name for task in self._tasks.values()]

    def register(self, machine: Machine, task: Task) -> None:
        """Add a task. One with the same name is replaced."""
        self._tasks[task.name.lower()] = task
        self._wait(machine, task.name.lower())

    def unregister(self, name: str) -> None:
        if self._tasks.pop(name.lower(), None) is None:
            raise RefusedByWindows(f"there is no task {name}")

    def restarted(self, machine: Machine) -> None:
        """Windows has started: nothing waits any more for the runs of before."""
        self._waiting.clear()
        for name in self._tasks:
            self._wait(machine, name)

    def _wait(self, machine: Machine, name: str) -> None:
        """Wait for the next run. The clock of the model has no date, so this is the longest time it can take."""
        task = self._tasks.get(name)
        if task is None or name in self._waiting or AT_TIMES not in task.triggers or task.every_s is None:
            return
        self._waiting.add(name)
        machine.later(task.every_s, functools.partial(self._run, machine, name))

    def _run(self, machine: Machine, name: str) -> None:
        self._waiting.discard(name)
        task = self._tasks.get(name)
        if task is not None and task.enabled and machine.services.is_running(SERVICE):
            self.results[name] = _result(machine, task)
        self._wait(machine, name)


def _result(machine: Machine, task: Task) -> int:
    if not machine.files.is_file(task.program):
        return NO_PROGRAM
    if parts(task.program)[-1].lower() == "cmd.exe":
        return run_program(machine, task.program, task.arguments)[0]
    given = words(task.arguments)
    lowered = [word.lower() for word in given]
    if "-file" not in lowered or len(given) == lowered.index("-file") + 1:
        return 0
    script, *arguments = given[lowered.index("-file") + 1 :]
    if not machine.files.is_file(script):
        return NO_SCRIPT
    if find_refusal(machine, script):
        return REFUSED
    known = SCRIPTS.get(script.rpartition("\\")[2].lower())
    if known is None:
        return 0
    digest, act = known
    if hashlib.sha256(without_signature(machine.files.read(script))).hexdigest() != digest:
        raise UnknownCommandError(f"{script} is not the script that the rehearsal has a model of")
    return act(machine, arguments)
