"""Records each run in a journal, so that its resources in the cloud can be found if it dies; reads the journals, and
warns of what runs left behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pydantic

from imagegen.base.errors import BuildError, ImagegenError, RefusedError
from imagegen.build.packer import PackerError
from imagegen.leftovers import journal
from imagegen.leftovers.journal import Entry, RecordedRun
from imagegen.leftovers.sweep import Place, Swept, leftovers_of, place_of
from imagegen.providers import Leftover
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS
from imagegen.providers.tags import run_ids
from imagegen.providers.time_limits import Deadline

if TYPE_CHECKING:
    from imagegen.plan.model import BuildPlan
    from imagegen.run import Run

# For Packer's clean-up, and for clocks that differ.
_MARGIN_S: Final = 3600


@contextlib.contextmanager
def record_in_journal(plan: BuildPlan, folder: Path, run: Run, on_error: str = "cleanup") -> Iterator[Run]:
    """Record a run until it ends, and yield it with its expiry. Warns of leftovers: of earlier runs below its `out`
    before the run, and of its own if it succeeds, or if its build fails and nothing was to be kept.

    A run that only publishes is recorded too: otherwise its unfinished images would look like leftovers.
    """
    warn_of_leftovers(run)
    entry = _entry_for(plan, run, on_error)
    with journal.recorded(folder, entry, run.console.warn):
        try:
            yield dataclasses.replace(run, expires_at=entry.expires_at)
        except BuildError as error:
            if entry.on_error == "cleanup":
                _warn_of_own_leftovers(entry, run, "the build failed and")
            if isinstance(error, PackerError) and error.crashed:
                _tell_of_image(plan, run)
            raise
    if _warn_of_own_leftovers(entry, run, "the build succeeded but"):
        journal.add_end(journal.file_of(folder, entry.run_id), journal.LEFT, run.console.warn)


def reject_claimed(run: Run) -> None:
    """Refuse to build an image with a name that another run of this machine is using.

    This run is recorded already. If two runs start at once, each sees the other, and at most one continues.
    """
    runs = {known.entry.run_id: known for known in read_runs(run.out, lambda _: None)}
    claim = runs[run.id].entry.claim if run.id in runs else ""
    for other in runs.values():
        if claim and other.is_alive and other.entry.run_id != run.id and other.entry.claim == claim:
            raise RefusedError(
                f"run {other.entry.run_id} on this machine (process {other.entry.pid}) is already making {claim}",
                hint="wait until it ends, or use a version number that is made from the time",
            )


def _entry_for(plan: BuildPlan, run: Run, on_error: str) -> Entry:
    """The journal's entry. `expires_at` is after the deadline of Packer, even if it tries every size."""
    cloud = provider(plan.image.provider)
    longest_s = plan.build.longest_s * len(cloud.builder_sizes(plan.settings)) + _MARGIN_S
    expires = run.clock() + datetime.timedelta(seconds=longest_s)
    return Entry(
        run_id=run.id,
        target=plan.build.target,
        provider=plan.image.provider,
        image_id=plan.image_id,
        place=cloud.place(plan.settings, run).model_dump(mode="json"),
        started=run.started,
        expires_at=expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        on_error=on_error,
        claim=cloud.claim(plan, run) if cloud.claim else "",
    )


def read_runs(out: Path, warn: Callable[[str], None]) -> list[RecordedRun]:
    """Every run below `out`, oldest first. Warns of a journal of an unknown provider and skips it."""
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


def warn_of_leftovers(run: Run) -> None:
    """Warn of each dead run of this machine that left something. The new run continues in any case."""
    dead = [known for known in read_runs(run.out, run.console.warn) if known.may_have_left_something]
    if not dead:
        return
    found, faults = leftovers_of(dead, run)
    for place, fault in faults:
        ids = ", ".join(known.entry.run_id for known in dead if place_of(known).key == place.key)
        run.console.warn(f"could not check whether run {ids} left something behind: {fault.message}")
    for run_id, leftovers in found.items():
        kept = next((known.entry for known in dead if known.entry.run_id == run_id and known.keeps_leftovers), None)
        how = f"(--on-error={kept.on_error})" if kept else "ended without cleaning up and"
        when = f" after {kept.expires_at}" if kept else ""
        run.console.warn(f"run {run_id} {how} {_left(leftovers, run.out)}{when}")


def _warn_of_own_leftovers(entry: Entry, run: Run, how: str) -> bool:
    """Warn of what a run left, because Packer's clean-up may have failed. Returns whether it left something.

    A missing permission to list resources is a message and not a warning: the build has its own result.
    """
    place, swept = Place(entry.target, entry.cloud, entry.place), Swept()
    left = []
    with swept.collect_fault(place):
        found = swept.leftovers(place, run, Deadline(), usual=False)
        left = [leftover for leftover in found if entry.run_id in run_ids(leftover.run_id)]
    for _, fault in swept.faults:
        run.console.say(f"could not check whether the build left something behind: {fault.message}")
    if left:
        run.console.warn(f"{how} {_left(left, run.out)}")
    return bool(left)


def _tell_of_image(plan: BuildPlan, run: Run) -> None:
    """Say whether the image exists: a plugin may crash after it has made the image."""
    try:
        image = provider(plan.image.provider).find_built(plan, run).image
    except ImagegenError as fault:
        run.console.warn(f"could not check whether the image exists: {fault.message}")
    else:
        run.console.warn(f"the image {image.name} exists" if image else "the image does not exist")


def _left(leftovers: Iterable[Leftover], out: Path) -> str:
    things = ", ".join(f"{leftover.kind} {leftover.id}" for leftover in leftovers)
    return f"left {things}: `imagegen janitor --out {shlex.quote(str(out))} --delete` removes it"
