"""`imagegen build`, `publish`, `lock`, `render`, `doctor`, `janitor` and `tools`: what it takes to make an image."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import click

from imagegen import pipeline
from imagegen.base.errors import ExitCode, ImagegenError, PublishError, VerificationError
from imagegen.base.files import write_tree
from imagegen.base.lines import counted, one_line
from imagegen.build.doctor import examine
from imagegen.build.tools import find_tools, tool_exports_text
from imagegen.cli import arguments, options
from imagegen.cli.arguments import decide_plan, open_run, prepare_targets
from imagegen.cli.output import print_as
from imagegen.fetch import locking
from imagegen.fetch.drift import Change
from imagegen.fetch.lock import StoredLock
from imagegen.leftovers import sweep
from imagegen.leftovers.journal import RecordedRun
from imagegen.leftovers.sweep import Outcome, Place, configured_place, read_runs
from imagegen.pipeline import BuildOptions
from imagegen.plan import loading
from imagegen.plan.loading import ConfigRequest
from imagegen.plan.target import PreparedTarget
from imagegen.providers.checks import WRONG, Check
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS
from imagegen.record.manifest import ImageManifest
from imagegen.record.report import left_out_lines
from imagegen.run import Run


@click.command()
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.FROZEN
@options.OUT
@options.LABELS
@click.option(
    "--rehearse", is_flag=True, help="Build against stand-ins of the cloud on this machine, without an account."
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="NAME",
    help="With --rehearse: cause this fault; may be repeated. `imagegen catalog faults` lists the names.",
)
@click.option(
    "--no-boot",
    is_flag=True,
    help="With --rehearse: stop when the image exists. Otherwise a node is started from it, and must join a cluster.",
)
@click.option("--no-publish", is_flag=True, help="Stop when the image exists in the build region.")
@click.option("--rebuild", is_flag=True, help="Build even if the cloud has an image with this identity.")
@click.option(
    "--on-error",
    type=click.Choice(["cleanup", "abort"]),
    default="cleanup",
    show_default=True,
    help="What Packer does with its machine if the build fails: delete it, or keep it.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "none"]),
    default="text",
    show_default=True,
    help="How the manifest is printed at the end.",
)
@options.PLAIN
@options.QUIET
def build(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    frozen: bool,
    out: Path,
    labels: tuple[str, ...],
    rehearse: bool,
    faults: tuple[str, ...],
    no_boot: bool,
    no_publish: bool,
    rebuild: bool,
    on_error: str,
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """Build the image, publish it and record its manifest.

    First checks whether the cloud allows the build (`imagegen doctor` checks more), and stops if it does not.
    Then looks up what is missing in the lock, renders the tree, validates it with Packer, builds and publishes.
    After a failure run the same command again: finished images and copies are kept.
    """
    run = arguments.open_run(labels, plain=plain, quiet=quiet, out=out)
    request = ConfigRequest(config, options.today(), sets)
    # In a rehearsal the child process prints that there are warnings.
    loaded = loading.load(request) if rehearse else options.load_config(config, sets)
    targets = arguments.choose_targets(loaded, target)
    arguments.check_rehearsal_options(faults, targets, no_boot=no_boot, rehearse=rehearse)
    arguments.check_lock_options(lock_file, frozen=frozen, rehearse=rehearse)
    if rehearse:
        flags = arguments.list_flags({"--no-publish": no_publish, "--rebuild": rebuild, "--quiet": quiet}, on_error)

        def rehearsed(one: PreparedTarget) -> ImageManifest:
            return arguments.rehearse_build(request, one.name, run, flags, faults, boot=not no_boot)

        arguments.process_targets(targets, rehearsed, form)
        return
    choices = BuildOptions(
        arguments.find_lock_file(config, lock_file, run.labels), frozen, rebuild, not no_publish, on_error
    )
    _build_all(targets, choices, run, form)


def _build_all(targets: list[PreparedTarget], choices: BuildOptions, run: Run, form: str) -> None:
    # After each of several targets that can be built. The last lock has the entries of all.
    locks: list[StoredLock] = []

    def build_one(target: PreparedTarget) -> ImageManifest:
        manifest = pipeline.build(target, choices, run.again(), locks[-1] if locks else None)
        for line in left_out_lines(manifest.report):
            run.console.warn(line)
        return manifest

    # Before the first of several builds, so that all of them record the same lock.
    arguments.process_targets(
        targets, build_one, form, lambda one: locks.append(pipeline.check_and_lock(one, choices, run))
    )


@click.command()
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.OUT
@options.LABELS
@options.FORMAT
@options.PLAIN
@options.QUIET
def publish(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    out: Path,
    labels: tuple[str, ...],
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """Publish an image that was built before. Existing copies are kept."""
    run = arguments.open_run(labels, plain=plain, quiet=quiet, out=out)
    targets = arguments.choose_targets(options.load_config(config, sets), target)
    file = arguments.find_lock_file(config, lock_file, run.labels)

    def process(one: PreparedTarget) -> ImageManifest:
        return pipeline.publish_built(one, file, run.again())

    arguments.process_targets(targets, process, form)


@click.command()
@options.CONFIG
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.TARGETS
@options.SET
@options.LOCK
@click.option("--check", is_flag=True, help="Look up everything again, list what changed, and write nothing.")
@click.option("--upgrade", is_flag=True, help="Look up everything again, or only each NAME, and list what changed.")
@options.FROZEN
@options.LABELS
@options.FORMAT
@options.PLAIN
@options.QUIET
def lock(
    config: Path,
    names: tuple[str, ...],
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    check: bool,
    upgrade: bool,
    frozen: bool,
    labels: tuple[str, ...],
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """Pin the newest base images, and the sha256 and size of every artifact, computed from its bytes.

    Entries that the lock has already are kept. A NAME is an artifact, a target (its base image) or a container image.

    \b
      imagegen lock image.yaml                     complete the lock
      imagegen lock image.yaml --check             exit code 4 if something is not as locked
      imagegen lock image.yaml --upgrade prod      the newest base image of the target prod
      imagegen lock image.yaml --frozen            verify the lock and the cache, without the network

    --upgrade and --check print `NAME: OLD -> NEW`, or with --format json a list.
    """
    _check_lock_choices(names, check=check, upgrade=upgrade, frozen=frozen)
    run = arguments.open_run(labels, plain=plain, quiet=quiet)
    targets = arguments.prepare_targets(options.load_config(config, sets), target)
    file = arguments.find_lock_file(config, lock_file, run.labels)
    if check:
        changes = locking.find_drift(targets, file, run)
        _print_changes(changes, form)
        if changes:
            raise VerificationError(
                f"{file} is not up to date: {counted(len(changes), 'difference')}",
                hint=f"see each difference above; `{locking.lock_command(config, file)} --upgrade` accepts those of "
                "base images, tags and your own URLs",
            )
    elif upgrade:
        _print_changes(locking.upgrade(targets, file, names, run), form)
    else:
        (locking.verify_frozen if frozen else locking.look_up)(targets, file, run)
        locking.tell_unsigned(targets, run.console)
        print_as(form, {"lock": str(file)}, [str(file)])


def _check_lock_choices(names: tuple[str, ...], *, check: bool, upgrade: bool, frozen: bool) -> None:
    if check + upgrade + frozen > 1:
        raise click.UsageError("--check, --upgrade and --frozen exclude each other")
    if names and not upgrade:
        raise click.UsageError(f"{names[0]}: a NAME can only be used together with --upgrade")


def _print_changes(changes: list[Change], form: str) -> None:
    print_as(form, [dataclasses.asdict(change) for change in changes], map(str, changes))


@click.command()
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.FROZEN
@options.REHEARSED_LOCK
@options.OUT
def render(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    frozen: bool,
    rehearse: bool,
    out: Path,
) -> None:
    """Write the tree that Packer builds to OUT/<name>/<id>/tree and print its path.

    \b
    The tree is all that a plain Packer needs:
      eval "$(imagegen tools --env)"
      packer build OUT/<name>/<id>/tree

    With --rehearse the tree has the base image and the artifacts of a rehearsal, so it cannot be built. It is written
    to OUT/rehearsal/<name>/<id>/tree.
    """
    decision = decide_plan(config, target, sets, lock_file, rehearse=rehearse, frozen=frozen)
    folder = pipeline.build_folder(decision.plan, out / "rehearsal" if rehearse else out)
    # A running Packer may still read the existing tree.
    with folder.claimed():
        write_tree(pipeline.render_tree(decision), folder.tree)
    click.echo(one_line(str(folder.tree)))


_COLOURS = {"ok": "green", "wrong": "red", "unknown": "yellow"}
_WIDEST_SUBJECT = 44


@click.command()
@options.CONFIG
@options.TARGETS
@options.SET
@options.FORMAT
@options.PLAIN
@options.QUIET
def doctor(config: Path, target: str | None, sets: tuple[str, ...], form: str, plain: bool, quiet: bool) -> None:
    """Check on this machine and in the cloud whether a build of CONFIG can succeed. Creates nothing, needs no lock.

    \b
    It checks Packer and its plugin, sign-in, regions, base image, builder sizes and quotas,
    permissions, and your own resources in the config (network, keys, gallery, definition):
      imagegen doctor image.yaml --target prod

    \b
    The result of each check is one of:
      ok       as it must be
      wrong    the build or its publishing would fail; the hint says what to do
      unknown  the check was not possible, for example because a permission is missing

    `imagegen build` runs the quick checks itself. The exit code is 5 if something is wrong.
    """
    run = open_run(plain=plain, quiet=quiet)
    loaded = options.load_config(config, sets)
    results = {one.name: examine(one.spec, one.steps, run) for one in prepare_targets(loaded, target)}
    is_wrong = any(check.verdict == WRONG for checks in results.values() for check in checks)
    if form == "json":
        shown = {
            name: [
                {"subject": check.subject, "verdict": check.verdict, "message": check.message, "hint": check.hint}
                for check in checks
            ]
            for name, checks in results.items()
        }
        print_as(form, {"ok": not is_wrong, "targets": shown}, [])
    else:
        for name, checks in results.items():
            click.echo(_checks_text(f"{loaded.config.name} for {name}", checks))
    if is_wrong:
        raise click.exceptions.Exit(int(ExitCode.REFUSED))


def _checks_text(title: str, checks: Sequence[Check]) -> str:
    lines = [one_line(title)]
    width = min(max(len(check.subject) for check in checks), _WIDEST_SUBJECT)
    for check in checks:
        verdict = check.verdict.ljust(len("unknown"))
        if not os.environ.get("NO_COLOR"):
            verdict = click.style(verdict, fg=_COLOURS[check.verdict])
        lines.append(f"  {verdict}  {one_line(f'{check.subject.ljust(width)}  {check.message}')}")
        if check.hint:
            lines += [f"{' ' * 11}{one_line(line)}" for line in f"hint: {check.hint}".splitlines()]
    return "\n".join(lines)


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


@click.command()
@click.option(
    "--env", "as_exports", is_flag=True, help='Print shell exports for a plain packer: eval "$(imagegen tools --env)".'
)
@click.option("--no-build", is_flag=True, help="Only search. Download and build nothing.")
@options.FORMAT
@options.PLAIN
@options.QUIET
def tools(as_exports: bool, no_build: bool, form: str, plain: bool, quiet: bool) -> None:
    """Find Packer and its plugins. Missing ones are installed in the user's cache, in fixed versions.

    \b
    Packer is downloaded from HashiCorp (signature and checksum are verified), and installs its
    plugins. If these servers cannot be reached, Go builds them from source. This takes minutes, once.
    """
    run, needed = open_run(plain=plain, quiet=quiet), [provider(name).plugin for name in PROVIDERS]
    found = find_tools(environ=run.environ, console=run.console, build=not no_build, needed=needed)
    if as_exports:
        click.echo(tool_exports_text(found), nl=False)
        return
    shown = {
        "packer": {"version": found.packer_version, "path": str(found.packer)},
        "plugins": {name: {"version": item.version, "path": str(item.path)} for name, item in found.plugins.items()},
        "environment": dict(found.environment),
    }
    lines = [f"plugin {name} {item.version}  {item.path}" for name, item in sorted(found.plugins.items())]
    print_as(form, shown, [f"packer {found.packer_version}  {found.packer}", *lines])
