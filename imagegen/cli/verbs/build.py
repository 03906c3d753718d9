"""`imagegen build`: the whole story, in the cloud or on its stand-ins."""

from pathlib import Path

import click

from imagegen import loading, pipeline
from imagegen.cli import asking, options, rehearsing
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
@click.option(
    "--rehearse", is_flag=True, help="Against stand-ins of the cloud on this machine: no account, nothing leaves it."
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="NAME",
    help="With --rehearse: make this go wrong; may be repeated. `imagegen catalog faults` lists the names.",
)
@click.option("--no-publish", is_flag=True, help="Stop when the image exists in the build region.")
@click.option("--rebuild", is_flag=True, help="Build even where the cloud has an image of this identity.")
@options.ON_ERROR
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
    out: Path,
    labels: tuple[str, ...],
    rehearse: bool,
    faults: tuple[str, ...],
    no_publish: bool,
    rebuild: bool,
    on_error: str,
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """Build the image, publish it and record its manifest.

    Asks the cloud first whether that can succeed (`imagegen doctor` asks more), and refuses where it cannot.
    Looks up what the lock does not answer, renders, asks Packer whether the tree is right, builds, publishes.
    An image of the same identity is not built twice, and nothing is published twice: run it again after a failure.
    """
    console = asking.console_for(plain, quiet)
    failing = asking.on_error(on_error, rehearse=rehearse)
    asked = config_request(config, sets)
    # The child of a rehearsal says itself that there are warnings.
    loaded = loading.load(asked) if rehearse else load_config(asked)
    targets = asking.choose_targets(loaded, target)
    rehearsing.check_faults(faults, [each.spec.provider for each in targets], rehearse=rehearse)
    told = (("--no-publish", no_publish), ("--rebuild", rebuild), ("--quiet", quiet))
    flags = [*(flag for flag, on in told if on), "--on-error", on_error]
    if rehearse:
        rehearsing.refuse_lock_file(lock_file)

    def make(one: PreparedTarget) -> ImageManifest:
        if rehearse:
            return rehearsing.rehearse_build(asked, one.name, out, labels, flags, faults, console)
        return pipeline.build_and_publish(
            one,
            lock_file=asking.lock_file_of(config, lock_file, labels),
            out=out,
            run=asking.run_with(labels),
            console=console,
            rebuild=rebuild,
            with_publish=not no_publish,
            on_error=failing,
        )

    asking.make_each(targets, make, form)
