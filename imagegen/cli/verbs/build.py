"""`imagegen build`: the whole pipeline, in the cloud or against its stand-ins."""

import dataclasses
from pathlib import Path

import click

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.cli import arguments, options
from imagegen.fetch.lock import StoredLock
from imagegen.pipeline import PreparedTarget
from imagegen.plan import loading
from imagegen.plan.loading import ConfigRequest
from imagegen.record.manifest import ImageManifest
from imagegen.record.report import left_out_lines
from imagegen.trust.crl_use import CrlUse


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
    console = arguments.open_console(plain=plain, quiet=quiet)
    request = ConfigRequest(config, options.today(), sets)
    # In a rehearsal the child process prints that there are warnings.
    loaded = loading.load(request) if rehearse else options.load_config(config, sets)
    targets = arguments.choose_targets(loaded, target)
    arguments.check_rehearsal_options(faults, targets, no_boot=no_boot, rehearse=rehearse)
    flags = arguments.list_flags({"--no-publish": no_publish, "--rebuild": rebuild, "--quiet": quiet}, on_error)
    arguments.check_lock_options(lock_file, frozen=frozen, rehearse=rehearse)

    if rehearse:

        def process(one: PreparedTarget) -> ImageManifest:
            return arguments.rehearse_build(request, one.name, out, labels, flags, faults, console, boot=not no_boot)

        arguments.process_targets(targets, process, form)
        return
    builds = _Builds(
        *(config, lock_file, labels, out, console, on_error),
        rebuild=rebuild,
        with_publish=not no_publish,
        frozen=frozen,
    )
    arguments.process_targets(targets, builds.build, form, builds.prepare)


@dataclasses.dataclass(frozen=True)
class _Builds:
    """The builds of one command."""

    config: Path
    lock_file: Path | None
    labels: tuple[str, ...]
    out: Path
    console: Console
    on_error: str
    rebuild: bool
    with_publish: bool
    frozen: bool
    locks: list[StoredLock] = dataclasses.field(default_factory=list)
    """After each of several targets that can be built."""
    crls: CrlUse = dataclasses.field(default_factory=CrlUse)

    def prepare(self, target: PreparedTarget) -> None:
        """Before the first of several builds, so that all of them record the same lock."""
        self.locks.append(
            pipeline.check_and_lock(
                target,
                arguments.find_lock_file(self.config, self.lock_file, self.labels),
                run=arguments.make_run_facts(self.labels),
                console=self.console,
                with_publish=self.with_publish,
                frozen=self.frozen,
                crls=self.crls,
            )
        )

    def build(self, target: PreparedTarget) -> ImageManifest:
        manifest = pipeline.build_and_publish(
            target,
            lock_file=arguments.find_lock_file(self.config, self.lock_file, self.labels),
            out=self.out,
            run=arguments.make_run_facts(self.labels),
            console=self.console,
            rebuild=self.rebuild,
            with_publish=self.with_publish,
            on_error=self.on_error,
            frozen=self.frozen,
            # The last one has the entries of all targets.
            stored=self.locks[-1] if self.locks else None,
            crls=self.crls,
        )
        for line in left_out_lines(manifest.report):
            self.console.warn(line)
        return manifest
