"""Looks for leftovers in the places of a config or of the journals, and removes those that may go."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final

from imagegen.build import journal
from imagegen.leftovers.judge import Verdict, judge
from imagegen.providers import provider

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from imagegen.build.journal import RecordedRun
    from imagegen.console import Console
    from imagegen.providers import Leftover, Run

# What goes lets other things appear: a deleted key vault is there again as a soft-deleted one.
_PASSES: Final = 3


@dataclasses.dataclass(frozen=True)
class Place:
    """Where to look, in the words of the target's provider."""

    target: str
    details: Mapping[str, Any]

    @property
    def key(self) -> str:
        return json.dumps([self.target, self.details], sort_keys=True)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a leftover: it stays, would go, is gone, or could not be removed for a reason."""

    place: Place
    verdict: Verdict
    is_removed: bool = False
    why_not: str = ""

    @property
    def id(self) -> str:
        return self.verdict.leftover.id


def places_of(runs: Iterable[RecordedRun]) -> list[Place]:
    """Each place once, in the order of the runs."""
    found = [Place(run.entry.target, run.entry.place) for run in runs]
    return list({place.key: place for place in found}.values())


def left_by(runs: Sequence[RecordedRun], run: Run) -> dict[str, list[Leftover]]:
    """What these runs left, by their ids; a run that left nothing is not looked for again."""
    found: dict[str, list[Leftover]] = {dead.entry.run_id: [] for dead in runs}
    for place in places_of(runs):
        for leftover in provider(place.target).leftovers(place.details, run):
            if leftover.run_id in found:
                found[leftover.run_id].append(leftover)
    for dead in runs:
        if not found[dead.entry.run_id]:
            journal.close(dead)
    return {run_id: leftovers for run_id, leftovers in found.items() if leftovers}


def look(
    places: Sequence[Place], runs: Sequence[RecordedRun], run: Run, now: datetime.datetime, limit: int
) -> list[Outcome]:
    """What would be done, with nothing done."""
    found: dict[str, tuple[Place, Leftover]] = {}
    for place in places:
        for leftover in provider(place.target).leftovers(place.details, run):
            # Two configs may build in one account.
            found.setdefault(leftover.id, (place, leftover))
    verdicts = judge([leftover for _, leftover in found.values()], _by_id(runs), now, limit)
    return [Outcome(found[verdict.leftover.id][0], verdict) for verdict in verdicts]


def clean_up(
    places: Sequence[Place],
    runs: Sequence[RecordedRun],
    run: Run,
    now: datetime.datetime,
    limit: int,
    console: Console,
) -> list[Outcome]:
    """Remove what may go, look again for what that brought to light, and tell the journals of dead runs."""
    done: dict[str, Outcome] = {}
    stay: list[Outcome] = []
    for _ in range(_PASSES):
        seen = look(places, runs, run, now, limit - len(done))
        stay = [outcome for outcome in seen if outcome.id not in done and not outcome.verdict.goes]
        going = [outcome for outcome in seen if outcome.id not in done and outcome.verdict.goes]
        if not going:
            break
        done |= {outcome.id: outcome for outcome in _removed(places, going, run, console)}
    outcomes = [*done.values(), *stay]
    _close_journals(places, runs, outcomes)
    return outcomes


def _removed(places: Sequence[Place], going: Sequence[Outcome], run: Run, console: Console) -> Iterator[Outcome]:
    for place in places:
        here = {outcome.id: outcome for outcome in going if outcome.place == place}
        leftovers = [outcome.verdict.leftover for outcome in here.values()]
        for leftover, why_not in provider(place.target).remove(place.details, leftovers, run):
            if why_not:
                console.warn(f"{place.target}  {leftover.kind} {leftover.id} could not be removed: {why_not}")
            else:
                console.say(f"{place.target}  {leftover.kind} {leftover.id} removed")
            yield dataclasses.replace(here[leftover.id], is_removed=not why_not, why_not=why_not)


def _close_journals(places: Sequence[Place], runs: Sequence[RecordedRun], outcomes: Sequence[Outcome]) -> None:
    left = {outcome.verdict.leftover.run_id for outcome in outcomes if not outcome.is_removed}
    looked_at = {place.key for place in places}
    for dead in runs:
        was_looked_for = Place(dead.entry.target, dead.entry.place).key in looked_at
        if dead.may_have_left_something and was_looked_for and dead.entry.run_id not in left:
            journal.close(dead)


def _by_id(runs: Sequence[RecordedRun]) -> dict[str, RecordedRun]:
    return {run.entry.run_id: run for run in runs}
