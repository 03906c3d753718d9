"""Which leftovers go: by the journals of this machine first, then by the clock."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from imagegen.leftovers.journal import Entry, RecordedRun
from imagegen.leftovers.sweep import Place, judge
from imagegen.providers import Leftover

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
PLACE = Place("aws", "aws", {})
PAST, FUTURE = "2026-11-18T12:00:00Z", "2026-11-18T12:00:01Z"


def run(run_id: str, **facts: Any) -> RecordedRun:  # noqa: ANN401 - a run's own fields
    on_error = facts.pop("on_error", "cleanup")
    entry = Entry(run_id, "aws", facts.pop("image_id", "image of another"), {}, "", "", "here", 42, on_error)
    is_here, is_alive = facts.get("is_here", True), facts.get("is_alive", False)
    return RecordedRun(Path(run_id), entry, facts.get("ended", ""), is_here=is_here, is_alive=is_alive)


RUNS = {
    each.entry.run_id: each
    for each in (
        run("dead"),
        run("built", ended="built"),
        run("alive", is_alive=True, image_id="the image"),
        run("elsewhere", is_here=False),
        run("kept", ended="failed", on_error="abort"),
        run("asked", on_error="ask"),
        run("kept nothing", ended="built", on_error="abort"),
        run("left", ended="built, and left something", on_error="abort"),
    )
}


def leftover(run_id: str, expires_at: str, kind: str = "instance") -> Leftover:
    return Leftover(kind, f"{kind}-{run_id}", "us-east-1", "", "running", run_id, expires_at, "the image")


@pytest.mark.parametrize(
    ("left", "goes", "reason"),
    [
        (leftover("dead", FUTURE), True, "its run has ended (its process died)"),
        (leftover("built", FUTURE), True, "its run has ended (built)"),
        (leftover("alive", PAST), False, "its run is still active on this machine (process 42)"),
        (leftover("elsewhere", FUTURE), False, f"a run on another machine may use it until {FUTURE}"),
        (leftover("elsewhere", PAST), True, f"expired at {PAST}"),
        (leftover("unknown", FUTURE), False, f"a run on another machine may use it until {FUTURE}"),
        (leftover("unknown", PAST), True, f"expired at {PAST}"),
        (leftover("kept", FUTURE), False, f"kept until {FUTURE} (--on-error=abort)"),
        (leftover("kept", PAST), True, "its run has ended (failed)"),
        (leftover("kept", ""), False, "kept until"),
        (leftover("asked", FUTURE), False, f"kept until {FUTURE} (--on-error=ask)"),
        (leftover("kept nothing", FUTURE), True, "its run has ended (built)"),
        (leftover("left", FUTURE), True, "its run has ended (built, and left something)"),
        # Of several runs that wait for an image, each alone may keep it.
        (leftover("alive+dead", PAST), False, "its run is still active on this machine (process 42)"),
        (leftover("dead+built", FUTURE), True, "its run has ended (its process died)"),
        (leftover("unknown+dead", FUTURE), False, f"a run on another machine may use it until {FUTURE}"),
        (leftover("unknown+dead", PAST), True, f"expired at {PAST}"),
        (leftover("elsewhere+dead", FUTURE), False, f"a run on another machine may use it until {FUTURE}"),
        (leftover("unknown", "never"), False, "it has no valid expiry time ('never')"),
        (leftover("unknown", ""), False, "it has no valid expiry time ('')"),
        (leftover("unknown", "2026-01-01T00:00:00"), False, "it has no valid expiry time"),
        (leftover("dead", PAST, "image"), False, "run alive on this machine waits for this image"),
        (leftover("unknown", PAST, "image"), False, "run alive on this machine waits for this image"),
        (leftover("dead", PAST, "gallery version"), False, "run alive on this machine waits for this image"),
        (leftover("dead", PAST, "copied image"), False, "run alive on this machine waits for this image"),
        (leftover("dead", PAST, "snapshot"), False, "run alive on this machine waits for this image"),
    ],
)
def test_a_leftover_goes_when_its_run_is_over_or_its_time(left: Leftover, goes: bool, reason: str) -> None:
    [verdict] = judge(PLACE, [left], RUNS, NOW, 50)
    assert (verdict.leftover, verdict.goes) == (left, goes)
    assert verdict.reason.startswith(reason)


def test_no_more_than_the_limit_goes_and_what_stays_is_not_counted() -> None:
    left = [leftover("alive", PAST), *(leftover("dead", PAST, kind) for kind in ("a", "b", "c"))]
    verdicts = judge(PLACE, left, RUNS, NOW, 2)
    assert [verdict.goes for verdict in verdicts] == [False, True, True, False]
    assert verdicts[-1].reason == "over the limit of this run (--limit)"
    assert [verdict.goes for verdict in judge(PLACE, left, RUNS, NOW, 0)] == [False] * 4
