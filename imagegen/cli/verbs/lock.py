"""`imagegen lock`: looks up the newest base images and the digests of artifacts, and checks and upgrades a lock."""

import dataclasses
from pathlib import Path

import click

from imagegen.base.errors import VerificationError
from imagegen.base.lines import counted
from imagegen.cli import arguments, options
from imagegen.cli.output import print_as
from imagegen.fetch import locking
from imagegen.fetch.drift import Change


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
    _check_options(names, check=check, upgrade=upgrade, frozen=frozen)
    run = arguments.open_run(labels, plain=plain, quiet=quiet)
    targets = arguments.prepare_targets(options.load_config(config, sets), target)
    file = arguments.find_lock_file(config, lock_file, run.labels)
    if check:
        changes = locking.find_drift(targets, file, run)
        _print(changes, form)
        if changes:
            raise VerificationError(
                f"{file} is not up to date: {counted(len(changes), 'difference')}",
                hint=f"see each difference above; `{locking.lock_command(config, file)} --upgrade` accepts those of "
                "base images, tags and your own URLs",
            )
    elif upgrade:
        _print(locking.upgrade(targets, file, names, run), form)
    else:
        (locking.verify_frozen if frozen else locking.look_up)(targets, file, run)
        locking.tell_unsigned(targets, run.console)
        print_as(form, {"lock": str(file)}, [str(file)])


def _check_options(names: tuple[str, ...], *, check: bool, upgrade: bool, frozen: bool) -> None:
    if check + upgrade + frozen > 1:
        raise click.UsageError("--check, --upgrade and --frozen exclude each other")
    if names and not upgrade:
        raise click.UsageError(f"{names[0]}: a NAME can only be used together with --upgrade")


def _print(changes: list[Change], form: str) -> None:
    print_as(form, [dataclasses.asdict(change) for change in changes], map(str, changes))
