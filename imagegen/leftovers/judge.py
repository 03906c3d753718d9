"""Decides which leftovers go: those of a run that is over on this machine, and any that are past their time. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Final

from imagegen.providers.tags import run_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.build.journal import RecordedRun
    from imagegen.providers import Leftover

# With an image, what it consists of.
IMAGE_KINDS: Final = frozenset({"image", "copied image", "gallery version", "snapshot"})


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a leftover goes, and why or why not."""

    leftover: Leftover
    goes: bool
    reason: str


def judge(
    leftovers: Iterable[Leftover], runs: Mapping[str, RecordedRun], now: datetime.datetime, limit: int
) -> list[Verdict]:
    """One verdict each; beyond `limit` the rest stays for the next time."""
    verdicts: list[Verdict] = []
    going = 0
    for leftover in leftovers:
        verdict = _judge_one(leftover, runs, now)
        if verdict.goes and going >= limit:
            verdict = Verdict(leftover, False, "more than this run of the janitor may remove (--limit)")
        going += verdict.goes
        verdicts.append(verdict)
    return verdicts


def _judge_one(leftover: Leftover, runs: Mapping[str, RecordedRun], now: datetime.datetime) -> Verdict:
    known = [runs[run_id] for run_id in run_ids(leftover.run_id) if run_id in runs]
    if living := next((run for run in known if run.is_alive), None):
        return Verdict(leftover, False, f"its run is still going on here (process {living.entry.pid})")
    if user := _user_of(leftover, runs):
        return Verdict(leftover, False, f"run {user.entry.run_id} here waits for this image")
    until = moment(leftover.expires_at)
    # Of several runs that wait for an image, the others may go on elsewhere.
    if len(known) == len(run_ids(leftover.run_id)) and all(run.is_here for run in known):
        keeper = next((run for run in known if run.keeps_leftovers), None)
        if keeper and (until is None or now < until):
            return Verdict(leftover, False, f"kept until {leftover.expires_at} (--on-error={keeper.entry.on_error})")
        return Verdict(leftover, True, f"its run is over ({known[0].ended or 'its process died'})")
    if until is None:
        return Verdict(leftover, False, f"it does not say until when it is used ({leftover.expires_at!r})")
    if now < until:
        return Verdict(leftover, False, f"may be in use by a run elsewhere until {leftover.expires_at}")
    return Verdict(leftover, True, f"past its time since {leftover.expires_at}")


def _user_of(leftover: Leftover, runs: Mapping[str, RecordedRun]) -> RecordedRun | None:
    """A run takes an image that is about to be finished for its own, and publishes it."""
    if leftover.kind not in IMAGE_KINDS:
        return None
    return next((run for run in runs.values() if run.is_alive and run.entry.image_id == leftover.image_id), None)


def moment(text: str) -> datetime.datetime | None:
    """The time that a tag or a journal says, if it says one."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None
