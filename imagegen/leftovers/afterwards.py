"""Looks once, when a run has ended well, whether it left something all the same: Packer's clean-up may have failed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from imagegen.build import journal
from imagegen.leftovers.sweep import Place, Swept
from imagegen.providers.deadline import Deadline
from imagegen.providers.tags import run_ids

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.build.journal import Entry
    from imagegen.console import Console
    from imagegen.providers import Run


def name_own_leftovers(entry: Entry, folder: Path, out: Path, run: Run, console: Console) -> None:
    """A warning with what is left, and a line in the run's journal, so that later runs name it too.

    What these credentials may not list is said and no warning: the build itself went well.
    """
    place, swept = Place(entry.target, entry.cloud, entry.place), Swept()
    left = []
    with swept.going_on(place):
        found = swept.leftovers(place, run, Deadline(), usual=False)
        left = [each for each in found if entry.run_id in run_ids(each.run_id)]
    for _, fault in swept.faults:
        console.say(f"whether the build left something behind could not be found out: {fault.message}")
    if left:
        things = ", ".join(f"{leftover.kind} {leftover.id}" for leftover in left)
        command = f"imagegen janitor --out {shlex.quote(str(out))} --delete"
        console.warn(f"the build ended well and left {things}: `{command}` removes it")
        journal.add_end(journal.file_of(folder, entry.run_id), journal.LEFT, console.warn)
