"""`imagegen janitor`: lists what killed builds left in the clouds, and deletes it with `--delete`."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import click

from imagegen.base.errors import ImagegenError, PublishError
from imagegen.cli import options
from imagegen.cli.arguments import open_run
from imagegen.cli.output import print_as
from imagegen.leftovers import sweep
from imagegen.leftovers.journal import RecordedRun
from imagegen.leftovers.sweep import Outcome, Place, configured_place, read_runs
from imagegen.plan import loading
from imagegen.run import Run


@click.command()
@click.argument("config", required=False, type=click.Path(path_type=Path))
@options.TARGETS
@options.SET
@options.OUT
@click.option("--delete", is_flag=True, help="Delete what is no longer needed, instead of listing it.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Delete at most this many resources; the rest stays for the next time.",
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

    Searches the places in the journals below OUT, and with CONFIG also the places where its targets build.

    \b
      imagegen janitor                        what this machine's builds left
      imagegen janitor image.yaml             also what other machines' builds left
      imagegen janitor image.yaml --delete    delete what is no longer needed

    Only resources with the id of a run are listed. Those of a run of this machine may go when the run has ended,
    those of any other run when it has expired (the tag imagegen_expires_at). A finished image is never deleted.

    The exit code is 7 if something could not be deleted: run it again. If a place cannot be searched, the janitor
    reports it and continues with the others.
    """
    run = open_run(plain=plain, quiet=quiet, out=out)
    # The journals are read several times, but each warning is printed once.
    read = functools.partial(read_runs, out, functools.cache(run.console.warn))
    runs = read()
    configured, faults = _find_places(config, target, sets, run) if config else ([], [])
    recorded = sweep.places_of(_runs_on(runs, target))
    places = list({place.key: place for place in (*configured, *recorded)}.values())
    swept = sweep.clean_up(places, read, run, limit) if delete else sweep.preview(places, runs, run, limit)
    faults += [fault for _, fault in swept.faults]
    print_as(form, list(map(_outcome_json, swept.outcomes)), map(_outcome_line, swept.outcomes))
    if places or not faults:
        run.console.say(_summary(swept.outcomes, places))
    _raise_if_incomplete(swept.outcomes, faults)


def _find_places(
    config: Path, target: str | None, sets: tuple[str, ...], run: Run
) -> tuple[list[Place], list[ImagegenError]]:
    """The places where the config's targets build, and the errors of targets whose place cannot be determined."""
    loaded = options.load_config(config, sets)
    places: list[Place] = []
    faults: list[ImagegenError] = []
    for name in loading.find_targets(loaded, target):
        try:
            places.append(configured_place(name, loaded.specs[name].settings, run))
        except ImagegenError as fault:
            faults.append(fault)
    return places, faults


def _runs_on(runs: Sequence[RecordedRun], target: str | None) -> Sequence[RecordedRun]:
    """The runs of the target with this name, or else of the cloud with this name. Without a name all runs."""
    named = [run for run in runs if target in (None, run.entry.target)]
    return named or [run for run in runs if run.entry.cloud == target]


def _raise_if_incomplete(outcomes: Sequence[Outcome], faults: Sequence[ImagegenError]) -> None:
    stuck = sum(bool(outcome.why_not) for outcome in outcomes)
    if not stuck and len(faults) == 1:
        raise faults[0]
    messages = [f"{stuck} of {len(outcomes)} leftovers could not be removed"] if stuck else []
    messages += ["not every place could be searched"] if faults else []
    if messages:
        raise PublishError(
            ", and ".join(messages),
            details=["; ".join(part for part in (fault.message, fault.hint) if part) for fault in faults],
            hint="run it again when the reason is gone",
        )


def _state_of(outcome: Outcome) -> str:
    if outcome.is_removed:
        return "removed"
    if outcome.why_not:
        return "not removed"
    return "may go" if outcome.goes else "stays"


def _outcome_line(outcome: Outcome) -> str:
    leftover = outcome.leftover
    name = f" {leftover.name}" if leftover.name and leftover.name != leftover.id else ""
    what = f"{leftover.kind} {leftover.id}{name} ({leftover.state}) of run {leftover.run_id}"
    reason = outcome.why_not or outcome.reason
    return f"{_state_of(outcome):<11}  {outcome.place.target} {leftover.region}  {what}: {reason}"


def _outcome_json(outcome: Outcome) -> dict[str, object]:
    return {
        **dataclasses.asdict(outcome.leftover),
        "target": outcome.place.target,
        "outcome": _state_of(outcome),
        "reason": outcome.why_not or outcome.reason,
    }


def _summary(outcomes: Sequence[Outcome], places: Sequence[Place]) -> str:
    """The result in one line, with the next command."""
    if not places:
        return "no place to search, because no journal of a build is in --out: give a CONFIG to search where it builds"
    going = sum(_state_of(outcome) == "may go" for outcome in outcomes)
    if going:
        return f"{going} may go: the same command with --delete removes {'them' if going > 1 else 'it'}"
    return "done" if any(outcome.is_removed for outcome in outcomes) else "nothing to remove"
