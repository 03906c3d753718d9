"""`imagegen janitor`: lists what dead runs left in the clouds, and removes it where that is asked for."""

import dataclasses
import datetime
import functools
from collections.abc import Sequence
from pathlib import Path

import click

from imagegen import loading
from imagegen.build.journal import RecordedRun
from imagegen.cli import asking, options
from imagegen.cli.configs import config_request, load_config
from imagegen.cli.show import print_json
from imagegen.errors import ImagegenError, PublishError
from imagegen.leftovers import sweep
from imagegen.leftovers.recording import read_runs
from imagegen.leftovers.sweep import Outcome, Place, configured_place
from imagegen.lines import one_line
from imagegen.providers import RunFacts

_LIMIT = 50


@click.command()
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option("--target", metavar="NAME", help="Only this target; all by default.")
@options.SET
@options.OUT
@click.option("--delete", is_flag=True, help="Remove what may go, instead of listing it.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_LIMIT,
    show_default=True,
    help="Remove at most this many things; the rest stays for the next time.",
)
@options.FORMAT
@options.PLAIN
@options.QUIET
def janitor(
    config: Path | None,
    target: str | None,
    sets: tuple[str, ...],
    out: Path,
    delete: bool,
    limit: int,
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """List what builds left in the clouds: machines, disks, keys, networks, vaults, unfinished images.

    Looks where the journals below OUT say that something was started, and with CONFIG also where its targets build.

    \b
      imagegen janitor                        what this machine's dead runs left
      imagegen janitor image.yaml             also what other machines' runs left
      imagegen janitor image.yaml --delete    remove what may go

    Only what carries a run's id is looked at. Of a run of this machine it may go when the run is over; of any other
    run, when its time is over (the tag imagegen_expires_at). A finished image is never removed.
    Exit code 7 where something could not be removed: run it again. What cannot be looked at hides nothing else.
    """
    run, console = asking.run_with(()), asking.console_for(plain, quiet)
    # Read again and again, and what is wrong with them is said once.
    read = functools.partial(read_runs, out, functools.cache(console.warn))
    runs = read()
    asked_for, faults = _places_of_config(config, target, sets, run) if config else ([], [])
    recorded = sweep.places_of(_runs_on(runs, target))
    places = list({place.key: place for place in (*asked_for, *recorded)}.values())
    now = datetime.datetime.now(datetime.UTC)
    if delete:
        swept = sweep.clean_up(places, read, run, now, limit, console)
    else:
        swept = sweep.preview(places, runs, run, now, limit)
    faults += [fault for _, fault in swept.faults]
    _tell(swept.outcomes, form)
    if places or not faults:
        console.say(summary(swept.outcomes, places))
    _raise_if_stuck(swept.outcomes, faults)


def _places_of_config(
    config: Path, target: str | None, sets: tuple[str, ...], run: RunFacts
) -> tuple[list[Place], list[ImagegenError]]:
    """Where the config's targets build, and what is wrong with those of which that cannot be told."""
    loaded = load_config(config_request(config, sets))
    places: list[Place] = []
    faults: list[ImagegenError] = []
    for name in loading.find_targets(loaded, target):
        try:
            places.append(configured_place(name, loaded.specs[name].settings, run))
        except ImagegenError as fault:
            faults.append(fault)
    return places, faults


def _runs_on(runs: Sequence[RecordedRun], target: str | None) -> Sequence[RecordedRun]:
    """Those of the target of that name or, where none was, of the cloud of that name."""
    if target is None:
        return runs
    named = [run for run in runs if run.entry.target == target]
    return named or [run for run in runs if run.entry.cloud == target]


def _tell(outcomes: Sequence[Outcome], form: str) -> None:
    if form == "json":
        print_json([outcome_json(outcome) for outcome in outcomes])
        return
    for outcome in outcomes:
        click.echo(outcome_line(outcome))


def _raise_if_stuck(outcomes: Sequence[Outcome], faults: Sequence[ImagegenError]) -> None:
    stuck = sum(bool(outcome.why_not) for outcome in outcomes)
    if not stuck and len(faults) == 1:
        raise faults[0]
    messages = [f"{stuck} of {len(outcomes)} leftovers could not be removed"] if stuck else []
    messages += ["not everything could be looked at"] if faults else []
    if messages:
        raise PublishError(
            ", and ".join(messages),
            details=["; ".join(part for part in (fault.message, fault.hint) if part) for fault in faults],
            hint="run it again when the reason is gone",
        )


def _word(outcome: Outcome) -> str:
    if outcome.is_removed:
        return "removed"
    if outcome.why_not:
        return "not removed"
    return "may go" if outcome.goes else "stays"


def outcome_line(outcome: Outcome) -> str:
    """One leftover as people read it."""
    leftover = outcome.leftover
    name = f" {leftover.name}" if leftover.name and leftover.name != leftover.id else ""
    what = f"{leftover.kind} {leftover.id}{name} ({leftover.state}) of run {leftover.run_id}"
    reason = outcome.why_not or outcome.reason
    return one_line(f"{_word(outcome):<11}  {outcome.place.target} {leftover.region}  {what}: {reason}")


def outcome_json(outcome: Outcome) -> dict[str, object]:
    """One leftover for machines."""
    return {
        **dataclasses.asdict(outcome.leftover),
        "target": outcome.place.target,
        "outcome": _word(outcome),
        "reason": outcome.why_not or outcome.reason,
    }


def summary(outcomes: Sequence[Outcome], places: Sequence[Place]) -> str:
    """What came of it, and what to type next."""
    if not places:
        return "nothing to look at: no journal below OUT names a run (give a CONFIG to look where it builds)"
    waiting = sum(_word(outcome) == "may go" for outcome in outcomes)
    if waiting:
        return f"{waiting} may go: the same command with --delete removes {'them' if waiting > 1 else 'it'}"
    return "nothing to remove" if not any(outcome.is_removed for outcome in outcomes) else "done"
