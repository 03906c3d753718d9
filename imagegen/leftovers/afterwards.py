"""Looks for leftovers of a run that succeeded: Packer's clean-up may have failed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.build import journal
from imagegen.build.journal import Entry
from imagegen.leftovers.sweep import Place, Swept
from imagegen.providers import RunFacts
from imagegen.providers.deadline import Deadline
from imagegen.providers.tags import run_ids

if TYPE_CHECKING:
    from imagegen.console import Console


def warn_of_own_leftovers(entry: Entry, folder: Path, out: Path, run: RunFacts, console: Console) -> None:
    """Warn of what this run left, and note it in the run's journal, so that later runs warn of it too.

    A missing permission to list resources is a message and not a warning, because the build succeeded.
    """
    place, swept = Place(entry.target, entry.cloud, entry.place), Swept()
    left = []
    with swept.collect_fault(place):
        found = swept.leftovers(place, run, Deadline(), usual=False)
        left = [leftover for leftover in found if entry.run_id in run_ids(leftover.run_id)]
    for _, fault in swept.faults:
        console.say(f"could not check whether the build left something behind: {fault.message}")
    if left:
        things = ", ".join(f"{leftover.kind} {leftover.id}" for leftover in left)
        command = f"imagegen janitor --out {shlex.quote(str(out))} --delete"
        console.warn(f"the build succeeded but left {things}: `{command}` removes it")
        journal.add_end(journal.file_of(folder, entry.run_id), journal.LEFT, console.warn)
