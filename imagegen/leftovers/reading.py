"""Reads the journals of runs. Warns of a journal of an unknown provider and skips it."""

from collections.abc import Callable
from pathlib import Path

import pydantic

from imagegen.build import journal
from imagegen.build.journal import Entry, RecordedRun
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS


def read_runs(out: Path, warn: Callable[[str], None]) -> list[RecordedRun]:
    """Every run below `out`, oldest first."""
    runs = []
    for run in journal.read_runs(out, warn):
        if wrong := _fault_of(run.entry):
            warn(f"skipping {run.file}: {wrong}")
        else:
            runs.append(run)
    return runs


def _fault_of(entry: Entry) -> str:
    if entry.cloud not in PROVIDERS:
        return f"{entry.cloud!r} is no provider of this version"
    try:
        provider(entry.cloud).place_model.model_validate(entry.place)
    except pydantic.ValidationError:
        return f"its place is none of {entry.cloud}"
    return ""
