"""Names what earlier runs of this machine left behind, before a new one starts."""

from __future__ import annotations

import datetime
import shlex
from typing import TYPE_CHECKING

from imagegen.leftovers.reading import read_runs
from imagegen.leftovers.sweep import left_by, place_of

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.console import Console
    from imagegen.providers import Run


def warn_of_leftovers(out: Path, run: Run, console: Console) -> None:
    """One warning for each run that died and left something; the new run goes on in any case."""
    dead = [each for each in read_runs(out, console.warn) if each.may_have_left_something]
    if not dead:
        return
    found, faults = left_by(dead, run, datetime.datetime.now(datetime.UTC), console)
    for place, fault in faults:
        ids = ", ".join(each.entry.run_id for each in dead if place_of(each).key == place.key)
        console.warn(f"whether run {ids} left something behind could not be found out: {fault.message}")
    command = f"imagegen janitor --out {shlex.quote(str(out))} --delete"
    for run_id, leftovers in found.items():
        things = ", ".join(f"{leftover.kind} {leftover.id}" for leftover in leftovers)
        kept = next((each.entry for each in dead if each.entry.run_id == run_id and each.keeps_leftovers), None)
        how = f"(--on-error={kept.on_error})" if kept else "ended without cleaning up and"
        when = f" after {kept.expires_at}" if kept else ""
        console.warn(f"run {run_id} {how} left {things}: `{command}` removes it{when}")
