"""`imagegen lock`: looks up what floats."""

from pathlib import Path

import click

from imagegen import loading, pipeline
from imagegen.cli import asking, options
from imagegen.cli.configs import config_request, load_config
from imagegen.lines import one_line


@click.command()
@options.CONFIG
@click.option("--target", metavar="NAME", help="Only this target; all of the config's by default.")
@options.SET
@options.LOCK
@click.option("--refresh", is_flag=True, help="Look everything up anew, also what the lock answers already.")
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
    """Look up what floats: base images, and the sha256 and size of every artifact, computed from its bytes."""
    console = asking.console_for(plain, quiet)
    loaded = load_config(config_request(config, sets))
    targets = [pipeline.prepare_target(loaded, name) for name in loading.find_targets(loaded, target)]
    file = asking.lock_file_of(config, lock_file, labels)
    pipeline.look_up(targets, file, refresh=refresh, run=asking.run_with(labels), console=console)
    click.echo(one_line(str(file)))
