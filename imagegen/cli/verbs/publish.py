"""`imagegen publish`: makes a built image usable."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.cli import asking, options
from imagegen.cli.configs import config_request, load_config
from imagegen.manifest.model import ImageManifest
from imagegen.pipeline import PreparedTarget


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
    """Publish an image that was built before; existing copies are kept."""
    console = asking.console_for(plain, quiet)
    targets = asking.choose_targets(load_config(config_request(config, sets)), target)
    file = asking.lock_file_of(config, lock_file, labels)

    def make(one: PreparedTarget) -> ImageManifest:
        run = asking.run_with(labels)
        return pipeline.publish_built(one, lock_file=file, out=out, run=run, console=console)

    asking.make_each(targets, make, form)
