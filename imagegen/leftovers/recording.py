"""Puts a run into the journal, with what its builder's resources are recognised by if it dies."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from typing import TYPE_CHECKING, Final

from imagegen.build.journal import Entry, recorded
from imagegen.errors import RefusedError
from imagegen.leftovers.afterwards import name_own_leftovers
from imagegen.leftovers.reading import read_runs
from imagegen.leftovers.warning import warn_of_leftovers
from imagegen.providers import provider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.build.packer import OnError
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import Run

# Packer's own clean-up, and clocks that differ.
_MARGIN_S: Final = 3600
# A build that waits for somebody's answer has no deadline; who has not come back for so long will not.
_ANSWER_S: Final = 7 * 24 * 3600


@contextlib.contextmanager
def in_journal(
    plan: BuildPlan, journal: Path, out: Path, run: Run, console: Console, on_error: OnError | None = None
) -> Iterator[Run]:
    """The run with its expiry, recorded until it ends; what earlier ones below `out` left is named first, and at a good
    end what this one left.

    Building or only publishing: an image may still be on its way, and nobody may take it for a leftover meanwhile.
    """
    warn_of_leftovers(out, run, console)
    entry = _entry_for(plan, run, on_error)
    with recorded(journal, entry, console.warn):
        yield dataclasses.replace(run, expires_at=entry.expires_at)
    name_own_leftovers(entry, journal, out, run, console)


def refuse_claimed(out: Path, run: Run) -> None:
    """Refuse to build what another run of this machine is building under the same name.

    This run is recorded already: of two that begin at once, each sees the other, and at most one goes on.
    """
    runs = {each.entry.run_id: each for each in read_runs(out, lambda _: None)}
    claim = runs[run.id].entry.claim if run.id in runs else ""
    for other in runs.values():
        if claim and other.is_alive and other.entry.run_id != run.id and other.entry.claim == claim:
            raise RefusedError(
                f"run {other.entry.run_id} on this machine (process {other.entry.pid}) is making {claim} already",
                hint="wait until it has ended, or choose a number that is made of the time",
            )


def _entry_for(plan: BuildPlan, run: Run, on_error: OnError | None) -> Entry:
    """After `expires_at` no Packer of this build runs any more, whichever size it had to take."""
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
