"""The task scheduler: tasks that run again and again, or at each start. No task runs: what a script does is taken as
run, and nobody reads what it did."""

from __future__ import annotations

import dataclasses

from imagegen.rehearsal.machine.access import SYSTEM
from imagegen.rehearsal.machine.refusal import RefusedByWindows

AT_TIMES, AT_START = "TimeTrigger", "BootTrigger"
# A time that has passed: each run is a multiple of the interval after it.
START = "2020-01-01T00:00:00Z"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as Windows stores it. `triggers` and `actions` are the names of their XML elements."""

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
    actions: tuple[str, ...] = ("Exec",)
    parallel: str = "IgnoreNew"
    priority: int = 6
    enabled: bool = True
    unconditional: bool = True


class Tasks:
    """The tasks by lower-case name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def task(self, name: str) -> Task | None:
        return self._tasks.get(name.lower())

    def names(self) -> list[str]:
        return [task.name for task in self._tasks.values()]

    def register(self, task: Task) -> None:
        """Add a task. One with the same name is replaced."""
        self._tasks[task.name.lower()] = task

    def unregister(self, name: str) -> None:
        if self._tasks.pop(name.lower(), None) is None:
            raise RefusedByWindows(f"there is no task {name}")
