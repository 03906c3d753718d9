"""Decides which leftovers to remove: those of runs that ended on this machine, and all that have expired. Pure."""

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import Final

from imagegen.build.journal import RecordedRun
from imagegen.providers import Leftover
from imagegen.providers.tags import run_ids

# Images and their parts.
IMAGE_KINDS: Final = frozenset({"image", "copied image", "gallery version", "snapshot"})


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether to remove a leftover, and why."""

    leftover: Leftover
    goes: bool
    reason: str


def judge(
    leftovers: Iterable[Leftover], runs: Mapping[str, RecordedRun], now: datetime.datetime, limit: int
) -> list[Verdict]:
    """One verdict for each leftover. At most `limit` of them are removed now."""
    verdicts: list[Verdict] = []
    going = 0
    for leftover in leftovers:
        verdict = _judge_one(leftover, runs, now)
        if verdict.goes and going >= limit:
            verdict = Verdict(leftover, False, "over the limit of this run (--limit)")
        going += verdict.goes
        verdicts.append(verdict)
    return verdicts


def _judge_one(leftover: Leftover, runs: Mapping[str, RecordedRun], now: datetime.datetime) -> Verdict:
    known = [runs[run_id] for run_id in run_ids(leftover.run_id) if run_id in runs]
    if alive := next((run for run in known if run.is_alive), None):
        return Verdict(leftover, False, f"its run is still active on this machine (process {alive.entry.pid})")
    if user := _user_of(leftover, runs):
        return Verdict(leftover, False, f"run {user.entry.run_id} on this machine waits for this image")
    until = moment(leftover.expires_at)
    # Several runs may wait for an image, and some of them may be on other machines.
    if len(known) == len(run_ids(leftover.run_id)) and all(run.is_here for run in known):
        kept_by = next((run for run in known if run.keeps_leftovers), None)
        if kept_by and (until is None or now < until):
            return Verdict(leftover, False, f"kept until {leftover.expires_at} (--on-error={kept_by.entry.on_error})")
        return Verdict(leftover, True, f"its run has ended ({known[0].ended or 'its process died'})")
    if until is None:
        return Verdict(leftover, False, f"it has no valid expiry time ({leftover.expires_at!r})")
    if now < until:
        return Verdict(leftover, False, f"a run on another machine may use it until {leftover.expires_at}")
    return Verdict(leftover, True, f"expired at {leftover.expires_at}")


def _user_of(leftover: Leftover, runs: Mapping[str, RecordedRun]) -> RecordedRun | None:
    """The active run, if any, that waits for this image in order to publish it."""
    if leftover.kind not in IMAGE_KINDS:
        return None
    return next((run for run in runs.values() if run.is_alive and run.entry.image_id == leftover.image_id), None)


def moment(text: str) -> datetime.datetime | None:
    """Parse the time of a tag or a journal. None if it is not a valid time with a zone."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None
