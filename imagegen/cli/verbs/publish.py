"""`imagegen publish`: publishes an image that was built before."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.cli import arguments, options
from imagegen.plan.target import PreparedTarget
from imagegen.record.manifest import ImageManifest


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
