"""Warns of what earlier runs of this machine left behind, before a new run starts."""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.leftovers.reading import read_runs
from imagegen.leftovers.sweep import leftovers_of, place_of
from imagegen.providers import RunFacts

if TYPE_CHECKING:
    from imagegen.console import Console


def warn_of_leftovers(out: Path, run: RunFacts, console: Console) -> None:
    """Warn of each dead run that left something. The new run continues in any case."""
    dead = [known for known in read_runs(out, console.warn) if known.may_have_left_something]
    if not dead:
        return
    found, faults = leftovers_of(dead, run, datetime.datetime.now(datetime.UTC), console)
    for place, fault in faults:
        ids = ", ".join(known.entry.run_id for known in dead if place_of(known).key == place.key)
        console.warn(f"could not check whether run {ids} left something behind: {fault.message}")
    command = f"imagegen janitor --out {shlex.quote(str(out))} --delete"
    for run_id, leftovers in found.items():
        things = ", ".join(f"{leftover.kind} {leftover.id}" for leftover in leftovers)
        kept = next((known.entry for known in dead if known.entry.run_id == run_id and known.keeps_leftovers), None)
        how = f"(--on-error={kept.on_error})" if kept else "ended without cleaning up and"
        when = f" after {kept.expires_at}" if kept else ""
        console.warn(f"run {run_id} {how} left {things}: `{command}` removes it{when}")
