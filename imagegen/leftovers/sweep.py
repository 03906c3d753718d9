"""Finds leftovers in the places of a config or of the journals, and removes those that nobody needs."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.build import journal
from imagegen.build.journal import RecordedRun
from imagegen.errors import ImagegenError
from imagegen.leftovers.judge import Verdict, judge, moment
from imagegen.providers import Leftover, RunFacts
from imagegen.providers.deadline import Deadline
from imagegen.providers.provider import provider
from imagegen.providers.settings import TargetSettings
from imagegen.providers.tags import run_ids

if TYPE_CHECKING:
    from imagegen.console import Console

# Removing one resource can make another one visible: a deleted key vault becomes a soft-deleted one.
_PASSES: Final = 3


@dataclasses.dataclass(frozen=True)
class Place:
    """Where to look. The provider understands the details; `target` is one of the targets that build there."""

    target: str
    provider: str
    details: Mapping[str, object]

    @property
    def key(self) -> str:
        """The same for all targets that build there."""
        return json.dumps([self.provider, self.details], sort_keys=True)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result for a leftover: kept, to be removed, removed, or not removable for a reason."""

    place: Place
    verdict: Verdict
    is_removed: bool = False
    why_not: str = ""

    @property
    def id(self) -> str:
        return self.verdict.leftover.id


@dataclasses.dataclass
class Swept:
    """The leftovers and their results. `faults` are the errors of places that could not be searched completely."""

    tried: dict[str, Outcome] = dataclasses.field(default_factory=dict)
    listed: dict[str, Outcome] = dataclasses.field(default_factory=dict)
    faults: list[tuple[Place, ImagegenError]] = dataclasses.field(default_factory=list)
    _lost: set[str] = dataclasses.field(default_factory=set)

    @property
    def outcomes(self) -> list[Outcome]:
        return [*self.tried.values(), *(listed for listed in self.listed.values() if listed.id not in self.tried)]

    def whole(self, places: Iterable[Place]) -> list[Place]:
        """The places without a fault."""
        faulty = {place.key for place, _ in self.faults}
        return [place for place in places if place.key not in faulty]

    def reachable(self, places: Iterable[Place]) -> list[Place]:
        """The places that could be searched at least in part."""
        return [place for place in places if place.key not in self._lost]

    @contextlib.contextmanager
    def collect_fault(self, place: Place) -> Iterator[None]:
        """Collect an error of one place, so that the other places are still searched."""
        try:
            yield
        except ImagegenError as fault:
            self._lost.add(place.key)
            self.add_fault(place, fault)

    def add_fault(self, place: Place, fault: ImagegenError) -> None:
        """Add a fault, unless it is known from an earlier pass."""
        if (place.key, fault.message) not in ((known.key, error.message) for known, error in self.faults):
            self.faults.append((place, fault))

    def leftovers(
        self, place: Place, run: RunFacts, deadline: Deadline | None = None, *, usual: bool = True
    ) -> Sequence[Leftover]:
        """The leftovers in a place, as far as they can be listed. With `usual` also those that every build leaves."""
        cloud = provider(place.provider)
        where = cloud.place_model.model_validate(place.details)
        found = [cloud.leftovers(where, run, deadline)]
        if usual and cloud.usual_leftovers and found[0].is_answered:
            found.append(cloud.usual_leftovers(where, run, deadline))
        for fault in (fault for listing in found for fault in listing.faults):
            self.add_fault(place, fault)
        return [leftover for listing in found for leftover in listing.leftovers]


def configured_place(target: str, settings: TargetSettings, run: RunFacts) -> Place:
    """The place where a target of a config builds."""
    place = provider(settings.provider).place(settings, run)
    return Place(target, settings.provider, place.model_dump(mode="json"))


def place_of(run: RecordedRun) -> Place:
    return Place(run.entry.target, run.entry.cloud, run.entry.place)


def places_of(runs: Iterable[RecordedRun]) -> list[Place]:
    """The places of runs, each once, in order."""
    return list({place.key: place for place in map(place_of, runs)}.values())


def leftovers_of(
    runs: Sequence[RecordedRun], run: RunFacts, now: datetime.datetime, console: Console
) -> tuple[dict[str, list[Leftover]], list[tuple[Place, ImagegenError]]]:
    """The leftovers of these runs by run id, and the errors of places that could not be searched.

    Closes the journal of an expired run that left nothing. A build waits for this search, so it has a deadline.
    """
    deadline = Deadline()
    found: dict[str, list[Leftover]] = {dead.entry.run_id: [] for dead in runs}
    swept = Swept()
    places = places_of(runs)
    for place in places:
        with swept.collect_fault(place):
            for leftover in swept.leftovers(place, run, deadline):
                for run_id in found.keys() & set(run_ids(leftover.run_id)):
                    found[run_id].append(leftover)
    left = {run_id: leftovers for run_id, leftovers in found.items() if leftovers}
    _close_journals(swept.whole(places), runs, left.keys(), now, console)
    return left, swept.faults


def preview(
    places: Sequence[Place], runs: Sequence[RecordedRun], run: RunFacts, now: datetime.datetime, limit: int
) -> Swept:
    """Find and judge leftovers, and remove nothing."""
    swept = Swept()
    for place in places:
        with swept.collect_fault(place):
            going = sum(outcome.verdict.goes for outcome in swept.listed.values())
            _list(swept, place, runs, run, now, limit - going)
    return swept


def clean_up(
    places: Sequence[Place],
    read: Callable[[], Sequence[RecordedRun]],
    run: RunFacts,
    now: datetime.datetime,
    limit: int,
    console: Console,
) -> Swept:
    """Remove leftovers, search again for what became visible, and close the journals of dead runs.

    The journals are read again before each place: a new run may wait for an image there.
    """
    swept = Swept()
    for _ in range(_PASSES):
        swept.listed, before = {}, len(swept.tried)
        for place in swept.reachable(places):
            with swept.collect_fault(place):
                seen = _list(swept, place, read(), run, now, limit - len(swept.tried))
                going = [outcome for outcome in seen if outcome.verdict.goes]
                for outcome in _remove(place, going, run, console):
                    swept.tried[outcome.id] = outcome
        if len(swept.tried) == before:
            break
    stay = [outcome.verdict.leftover for outcome in swept.outcomes if not outcome.is_removed]
    left = {run_id for leftover in stay for run_id in run_ids(leftover.run_id)}
    _close_journals(swept.whole(places), read(), left, now, console)
    return swept


def _list(
    swept: Swept, place: Place, runs: Sequence[RecordedRun], run: RunFacts, now: datetime.datetime, limit: int
) -> list[Outcome]:
    """Judge the new leftovers of a place. Skips known ones, because two configs may share an account."""
    by_id = {known_run.entry.run_id: known_run for known_run in runs}
    known = swept.tried.keys() | swept.listed.keys()
    found = [leftover for leftover in swept.leftovers(place, run) if leftover.id not in known]
    outcomes = [Outcome(place, verdict) for verdict in judge(found, by_id, now, limit)]
    swept.listed |= {outcome.id: outcome for outcome in outcomes}
    return outcomes


def _remove(place: Place, going: Sequence[Outcome], run: RunFacts, console: Console) -> Iterator[Outcome]:
    here = {outcome.id: outcome for outcome in going}
    if not here:
        return
    leftovers = [outcome.verdict.leftover for outcome in going]
    cloud = provider(place.provider)
    for leftover, why_not in cloud.remove(cloud.place_model.model_validate(place.details), leftovers, run):
        if why_not:
            console.warn(f"{place.target}  {leftover.kind} {leftover.id} could not be removed: {why_not}")
        else:
            console.say(f"{place.target}  {leftover.kind} {leftover.id} removed")
        yield dataclasses.replace(here[leftover.id], is_removed=not why_not, why_not=why_not)


def _close_journals(
    searched: Sequence[Place],
    runs: Sequence[RecordedRun],
    left: Collection[str],
    now: datetime.datetime,
    console: Console,
) -> None:
    """Close the journals of expired runs. Before, their Packer may still run, and clouds list new resources late."""
    keys = {place.key for place in searched}
    for dead in runs:
        until = moment(dead.entry.expires_at)
        is_past = until is not None and until <= now
        was_searched = is_past and place_of(dead).key in keys
        if dead.may_have_left_something and was_searched and dead.entry.run_id not in left:
            journal.close(dead, console.warn)
