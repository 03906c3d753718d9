"""`imagegen build`: the whole pipeline, in the cloud or against its stand-ins."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.cli import arguments, options
from imagegen.fetch.lock import StoredLock
from imagegen.pipeline import BuildOptions
from imagegen.plan import loading
from imagegen.plan.loading import ConfigRequest
from imagegen.plan.target import PreparedTarget
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
