"""`imagegen publish`: publishes an image that was built before."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.cli import arguments, options
from imagegen.pipeline import PreparedTarget
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
    console = arguments.open_console(plain=plain, quiet=quiet)
    targets = arguments.choose_targets(options.load_config(config, sets), target)
    file = arguments.find_lock_file(config, lock_file, labels)

    def process(one: PreparedTarget) -> ImageManifest:
        return pipeline.publish_built(
            one, lock_file=file, out=out, run=arguments.make_run_facts(labels), console=console
        )

    arguments.process_targets(targets, process, form)
