"""`imagegen lock`: looks up the newest base images, and the digests of artifacts."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.cli import arguments, options
from imagegen.lines import one_line


@click.command()
@options.CONFIG
@options.TARGETS
@options.SET
@options.LOCK
@click.option("--refresh", is_flag=True, help="Look up everything again, also what the lock has already.")
@options.LABELS
@options.PLAIN
@options.QUIET
def lock(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    refresh: bool,
    labels: tuple[str, ...],
    plain: bool,
    quiet: bool,
) -> None:
    """Pin the newest base images, and the sha256 and size of every artifact, computed from its bytes.

    Entries that the lock has already are kept, unless --refresh is given.
    """
    console = arguments.open_console(plain=plain, quiet=quiet)
    targets = arguments.prepare_targets(options.load_config(config, sets), target)
    file = arguments.find_lock_file(config, lock_file, labels)
    pipeline.look_up(targets, file, refresh=refresh, run=arguments.make_run_facts(labels), console=console)
    click.echo(one_line(str(file)))
