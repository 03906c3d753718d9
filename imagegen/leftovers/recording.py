"""Records a run in the journal, so that its resources in the cloud can be found if it dies."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.build.journal import Entry, recorded
from imagegen.build.packer import OnError
from imagegen.errors import RefusedError
from imagegen.leftovers.afterwards import warn_of_own_leftovers
from imagegen.leftovers.reading import read_runs
from imagegen.leftovers.warning import warn_of_leftovers
from imagegen.providers import RunFacts
from imagegen.providers.provider import provider

if TYPE_CHECKING:
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan

# For Packer's clean-up, and for clocks that differ.
_MARGIN_S: Final = 3600
# A build that asks the user has no deadline. After this time nobody will answer.
_ANSWER_S: Final = 7 * 24 * 3600


@contextlib.contextmanager
def record_in_journal(
    plan: BuildPlan, journal: Path, out: Path, run: RunFacts, console: Console, on_error: OnError | None = None
) -> Iterator[RunFacts]:
    """Record a run until it ends, and yield it with its expiry. Warns of leftovers: of earlier runs below `out` before
    the run, and of its own if it succeeds.

    A run that only publishes is recorded too: otherwise its unfinished images would look like leftovers.
    """
    warn_of_leftovers(out, run, console)
    entry = _entry_for(plan, run, on_error)
    with recorded(journal, entry, console.warn):
        yield dataclasses.replace(run, expires_at=entry.expires_at)
    warn_of_own_leftovers(entry, journal, out, run, console)


def reject_claimed(out: Path, run: RunFacts) -> None:
    """Refuse to build an image with a name that another run of this machine is using.

    This run is recorded already. If two runs start at once, each sees the other, and at most one continues.
    """
    runs = {known.entry.run_id: known for known in read_runs(out, lambda _: None)}
    claim = runs[run.id].entry.claim if run.id in runs else ""
    for other in runs.values():
        if claim and other.is_alive and other.entry.run_id != run.id and other.entry.claim == claim:
            raise RefusedError(
                f"run {other.entry.run_id} on this machine (process {other.entry.pid}) is already making {claim}",
                hint="wait until it ends, or use a version number that is made from the time",
            )


def _entry_for(plan: BuildPlan, run: RunFacts, on_error: OnError | None) -> Entry:
    """The journal's entry. `expires_at` is after the deadline of Packer, even if it tries every size."""
    cloud = provider(plan.image.provider)
    longest_s = plan.build.longest_s * len(cloud.builder_sizes(plan.settings)) + _MARGIN_S
    choice = on_error.choice if on_error else "cleanup"
    if choice == "ask":
        longest_s += _ANSWER_S
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=longest_s)
    return Entry(
        run_id=run.id,
        target=plan.build.target,
        provider=plan.image.provider,
        image_id=plan.image_id,
        place=cloud.place(plan.settings, run).model_dump(mode="json"),
        started=run.started,
        expires_at=expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        on_error=choice,
        claim=cloud.claim(plan, run) if cloud.claim else "",
    )
