"""Records each run in a journal, finds leftovers, warns of them, and removes those that nobody needs.

Leftovers are searched in the places of a config or of the journals. They are those of runs that ended on this machine,
and all that have expired.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pydantic

from imagegen.base.errors import BuildError, ImagegenError, RefusedError
from imagegen.build.packer import PackerError
from imagegen.leftovers import journal
from imagegen.leftovers.journal import Entry, RecordedRun
from imagegen.providers import Leftover, RunFacts
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS
from imagegen.providers.settings import TargetSettings
from imagegen.providers.tags import run_ids
from imagegen.providers.time_limits import Deadline

if TYPE_CHECKING:
    from imagegen.plan.model import BuildPlan
    from imagegen.run import Run


# Images and their parts.
IMAGE_KINDS: Final = frozenset({"image", "copied image", "gallery version", "snapshot"})
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
    """The result for a leftover: whether to remove it and why, and whether that was done or why not."""

    place: Place
    leftover: Leftover
    goes: bool
    reason: str
    is_removed: bool = False
    why_not: str = ""


@dataclasses.dataclass
class Swept:
    """The leftovers and their results. `faults` are the errors of places that could not be searched completely."""

    tried: dict[str, Outcome] = dataclasses.field(default_factory=dict)
    listed: dict[str, Outcome] = dataclasses.field(default_factory=dict)
    faults: list[tuple[Place, ImagegenError]] = dataclasses.field(default_factory=list)
    lost: set[str] = dataclasses.field(default_factory=set)
    """The keys of the places that could not be searched at all."""

    @property
    def outcomes(self) -> list[Outcome]:
        return [*self.tried.values(), *(new for id_, new in self.listed.items() if id_ not in self.tried)]

    @contextlib.contextmanager
    def collect_fault(self, place: Place) -> Iterator[None]:
        """Collect an error of one place, so that the other places are still searched."""
        try:
            yield
        except ImagegenError as fault:
            self.lost.add(place.key)
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

    def close_journals(
        self,
        places: Iterable[Place],
        runs: Sequence[RecordedRun],
        left: Collection[str],
        run: Run,
    ) -> None:
        """Close the journals of expired runs that left nothing in these places, if they were searched completely.

        Before a run expires, its Packer may still run, and clouds list new resources late.
        """
        searched = {place.key for place in places} - {place.key for place, _ in self.faults}
        for dead in runs:
            until = moment(dead.entry.expires_at)
            is_past = until is not None and until <= run.clock()
            is_clean = place_of(dead).key in searched and dead.entry.run_id not in left
            if dead.may_have_left_something and is_past and is_clean:
                journal.add_end(dead.file, journal.CLEANED, run.console.warn)


def configured_place(target: str, settings: TargetSettings, run: RunFacts) -> Place:
    """The place where a target of a config builds."""
    return Place(target, settings.provider, provider(settings.provider).place(settings, run).model_dump(mode="json"))


def place_of(run: RecordedRun) -> Place:
    return Place(run.entry.target, run.entry.cloud, run.entry.place)


def places_of(runs: Iterable[RecordedRun]) -> list[Place]:
    """The places of runs, each once, in order."""
    return list({place.key: place for place in map(place_of, runs)}.values())


def leftovers_of(
    runs: Sequence[RecordedRun], run: Run
) -> tuple[dict[str, list[Leftover]], list[tuple[Place, ImagegenError]]]:
    """The leftovers of these runs by run id, and the errors of places that could not be searched.

    Without those that every build leaves. Closes the journal of an expired run that left nothing. A build waits for
    this search, so it has a deadline.
    """
    deadline = Deadline()
    found: dict[str, list[Leftover]] = {dead.entry.run_id: [] for dead in runs}
    swept, places = Swept(), places_of(runs)
    for place in places:
        with swept.collect_fault(place):
            for leftover in swept.leftovers(place, run, deadline, usual=False):
                for run_id in found.keys() & set(run_ids(leftover.run_id)):
                    found[run_id].append(leftover)
    left = {run_id: leftovers for run_id, leftovers in found.items() if leftovers}
    swept.close_journals(places, runs, left.keys(), run)
    return left, swept.faults


def preview(places: Sequence[Place], runs: Sequence[RecordedRun], run: Run, limit: int) -> Swept:
    """Find and judge leftovers, and remove nothing."""
    swept = Swept()
    for place in places:
        with swept.collect_fault(place):
            _list(swept, place, runs, run, limit - sum(outcome.goes for outcome in swept.listed.values()))
    return swept


def clean_up(
    places: Sequence[Place],
    read: Callable[[], Sequence[RecordedRun]],
    run: Run,
    limit: int,
) -> Swept:
    """Remove leftovers, search again for what became visible, and close the journals of dead runs.

    The journals are read again before each place: a new run may wait for an image there.
    """
    swept = Swept()
    for _ in range(_PASSES):
        swept.listed, before = {}, len(swept.tried)
        for place in [place for place in places if place.key not in swept.lost]:
            with swept.collect_fault(place):
                seen = _list(swept, place, read(), run, limit - len(swept.tried))
                for outcome in _remove(place, seen, run):
                    swept.tried[outcome.leftover.id] = outcome
        if len(swept.tried) == before:
            break
    stay = [outcome.leftover for outcome in swept.outcomes if not outcome.is_removed]
    left = {run_id for leftover in stay for run_id in run_ids(leftover.run_id)}
    swept.close_journals(places, read(), left, run)
    return swept


def _list(swept: Swept, place: Place, runs: Sequence[RecordedRun], run: Run, limit: int) -> list[Outcome]:
    """Judge the new leftovers of a place. Skips known ones, because two configs may share an account."""
    known = swept.tried.keys() | swept.listed.keys()
    found = [leftover for leftover in swept.leftovers(place, run) if leftover.id not in known]
    outcomes = judge(place, found, {recorded.entry.run_id: recorded for recorded in runs}, run.clock(), limit)
    swept.listed |= {outcome.leftover.id: outcome for outcome in outcomes}
    return outcomes


def judge(
    place: Place,
    leftovers: Iterable[Leftover],
    runs: Mapping[str, RecordedRun],
    now: datetime.datetime,
    limit: int,
) -> list[Outcome]:
    """Decide which leftovers to remove, at most `limit` of them now. Pure."""
    outcomes: list[Outcome] = []
    for leftover in leftovers:
        goes, reason = _judge_one(leftover, runs, now)
        if goes and sum(outcome.goes for outcome in outcomes) >= limit:
            goes, reason = False, "over the limit of this run (--limit)"
        outcomes.append(Outcome(place, leftover, goes, reason))
    return outcomes


def _judge_one(leftover: Leftover, runs: Mapping[str, RecordedRun], now: datetime.datetime) -> tuple[bool, str]:
    """Whether to remove a leftover, and why."""
    known = [runs[run_id] for run_id in run_ids(leftover.run_id) if run_id in runs]
    if alive := next((run for run in known if run.is_alive), None):
        return False, f"its run is still active on this machine (process {alive.entry.pid})"
    users = (run for run in runs.values() if run.is_alive and run.entry.image_id == leftover.image_id)
    if leftover.kind in IMAGE_KINDS and (user := next(users, None)):
        return False, f"run {user.entry.run_id} on this machine waits for this image"
    until = moment(leftover.expires_at)
    # Several runs may wait for an image, and some of them may be on other machines.
    if len(known) == len(run_ids(leftover.run_id)) and all(run.is_here for run in known):
        kept_by = next((run for run in known if run.keeps_leftovers), None)
        if kept_by and (until is None or now < until):
            return False, f"kept until {leftover.expires_at} (--on-error={kept_by.entry.on_error})"
        return True, f"its run has ended ({known[0].ended or 'its process died'})"
    if until is None:
        return False, f"it has no valid expiry time ({leftover.expires_at!r})"
    if now < until:
        return False, f"a run on another machine may use it until {leftover.expires_at}"
    return True, f"expired at {leftover.expires_at}"


def moment(text: str) -> datetime.datetime | None:
    """Parse the time of a tag or a journal. None if it is not a valid time with a zone."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _remove(place: Place, outcomes: Iterable[Outcome], run: Run) -> Iterator[Outcome]:
    going = {outcome.leftover.id: outcome for outcome in outcomes if outcome.goes}
    if not going:
        return
    cloud = provider(place.provider)
    leftovers = [outcome.leftover for outcome in going.values()]
    for leftover, why_not in cloud.remove(cloud.place_model.model_validate(place.details), leftovers, run):
        if why_not:
            run.console.warn(f"{place.target}  {leftover.kind} {leftover.id} could not be removed: {why_not}")
        else:
            run.console.say(f"{place.target}  {leftover.kind} {leftover.id} removed")
        yield dataclasses.replace(going[leftover.id], is_removed=not why_not, why_not=why_not)


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
