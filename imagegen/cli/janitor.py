"""`imagegen janitor`: lists what dead runs left in the clouds, and removes it where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagegen.cli import asking, options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.leftovers.sweep import Outcome, Place
    from imagegen.providers import Run

_LIMIT = 50


@click.command(short_help="List or remove what dead runs left in the cloud.")
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
    Exit code 7 where something could not be removed: run it again.
    """
    import datetime

    from imagegen.build.journal import read_runs
    from imagegen.leftovers import sweep

    run, console = asking.run_with(()), asking.console_for(plain, quiet)
    runs = read_runs(out)
    asked_for = _places_of_config(config, target, sets, run) if config else []
    recorded = [place for place in sweep.places_of(runs) if target in (None, place.target)]
    places = list({place.key: place for place in (*asked_for, *recorded)}.values())
    now = datetime.datetime.now(datetime.UTC)
    if delete:
        outcomes = sweep.clean_up(places, runs, run, now, limit, console)
    else:
        outcomes = sweep.look(places, runs, run, now, limit)
    _tell(outcomes, form)
    console.say(summary(outcomes, places))
    _raise_if_stuck(outcomes)


def _places_of_config(config: Path, target: str | None, sets: tuple[str, ...], run: Run) -> list[Place]:
    from imagegen import pipeline
    from imagegen.leftovers.sweep import Place
    from imagegen.providers import provider

    loaded = asking.loaded(asking.asked(config, sets))
    if target is not None:
        pipeline.check_target(loaded, target)
    named = loaded.config.targets.named()
    return [
        Place(name, provider(name).place(provider(name).build_settings(settings), run))
        for name, settings in named.items()
        if target in (None, name)
    ]


def _tell(outcomes: Sequence[Outcome], form: str) -> None:
    if form == "json":
        from imagegen.cli.show import print_json

        print_json([outcome_json(outcome) for outcome in outcomes])
        return
    for outcome in outcomes:
        click.echo(outcome_line(outcome))


def _raise_if_stuck(outcomes: Sequence[Outcome]) -> None:
    from imagegen.errors import PublishError

    stuck = [outcome for outcome in outcomes if outcome.why_not]
    if stuck:
        raise PublishError(
            f"{len(stuck)} of {len(outcomes)} leftovers could not be removed",
            details=[f"{outcome.verdict.leftover.kind} {outcome.id}: {outcome.why_not}" for outcome in stuck],
            hint="run it again when the reason is gone",
        )


def _word(outcome: Outcome) -> str:
    if outcome.is_removed:
        return "removed"
    if outcome.why_not:
        return "not removed"
    return "may go" if outcome.verdict.goes else "stays"


def outcome_line(outcome: Outcome) -> str:
    """One leftover as people read it."""
    leftover = outcome.verdict.leftover
    name = f" {leftover.name}" if leftover.name and leftover.name != leftover.id else ""
    what = f"{leftover.kind} {leftover.id}{name} ({leftover.state}) of run {leftover.run_id}"
    reason = outcome.why_not or outcome.verdict.reason
    return f"{_word(outcome):<11}  {outcome.place.target} {leftover.region}  {what}: {reason}"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """One leftover for machines."""
    return {
        **outcome.verdict.leftover._asdict(),
        "target": outcome.place.target,
        "outcome": _word(outcome),
        "reason": outcome.why_not or outcome.verdict.reason,
    }


def summary(outcomes: Sequence[Outcome], places: Sequence[Place]) -> str:
    """What came of it, and what to type next."""
    if not places:
        return "nothing to look at: no journal below OUT names a run (give a CONFIG to look where it builds)"
    waiting = sum(_word(outcome) == "may go" for outcome in outcomes)
    if waiting:
        return f"{waiting} may go: the same command with --delete removes {'them' if waiting > 1 else 'it'}"
    return "nothing to remove" if not any(outcome.is_removed for outcome in outcomes) else "done"
