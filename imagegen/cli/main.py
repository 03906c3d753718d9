"""The verbs. Each parses, makes one call into the pipeline and prints; all exits are in `main`.

Nothing heavy is imported before a verb runs: `imagegen --help` costs what click costs.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

import imagegen
import imagegen.cli.startup
from imagegen.cli import options

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.console import Console
    from imagegen.manifest.model import ImageManifest
    from imagegen.providers import Run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(imagegen.__version__, prog_name="imagegen")
def cli() -> None:
    """Windows Kubernetes node images for Azure and AWS from one declarative config.

    \b
    A first look, without any cloud account:
      imagegen validate configs/windows-2022-containerd.yaml
      imagegen build configs/windows-2022-containerd.yaml --target aws --rehearse

    Each verb is a longer part of one story: validate, lock, plan, render, build, publish.
    Exit codes: 0 ok, 2 usage or config, 3 a tool is missing, 4 bytes not as they should be, 5 refused,
    6 build failed, 7 publishing incomplete, 8 manifest conflict, 130 interrupted.
    """


@cli.command()
@options.CONFIG
@click.option("--target", metavar="NAME", help="Also check that the config has this target.")
@options.FORMAT
def validate(config: Path, target: str | None, form: str) -> None:
    """Check a config: its form and its rules. Looks nothing up."""
    from imagegen import pipeline
    from imagegen.errors import ConfigError

    try:
        loaded = pipeline.load(config)
        if target is not None:
            pipeline.check_target(loaded, target)
    except ConfigError as error:
        if form != "json":
            raise
        from imagegen.cli.show import error_json

        _print_json(error_json(error))
        raise click.exceptions.Exit(int(error.exit_code)) from None
    targets = list(loaded.config.targets.named())
    if form == "json":
        _print_json({"ok": True, "name": loaded.config.name, "targets": targets, "problems": []})
    else:
        click.echo(f"{config}: ok ({loaded.config.name} for {', '.join(targets)})")


@cli.command()
@options.CONFIG
@click.option("--target", metavar="NAME", help="Only this target; all of the config's by default.")
@options.LOCK
@click.option("--refresh", is_flag=True, help="Look everything up anew, also what the lock answers already.")
@options.LABELS
@options.PLAIN
@options.QUIET
def lock(
    config: Path,
    target: str | None,
    lock_file: Path | None,
    refresh: bool,
    labels: tuple[str, ...],
    plain: bool,
    quiet: bool,
) -> None:
    """Look up what floats: base images, and the sha256 and size of every artifact, computed from its bytes."""
    from imagegen import pipeline

    loaded = pipeline.load(config)
    targets = [target] if target else list(loaded.config.targets.named())
    for name in targets:
        pipeline.evaluated(loaded, name)
    file = _lock_file(config, lock_file)
    pipeline.look_up(loaded, targets, file, refresh=refresh, run=_run(labels), console=_console(plain, quiet))
    click.echo(str(file))


@cli.command()
@options.CONFIG
@options.TARGET
@options.LOCK
@options.FORMAT
def plan(config: Path, target: str | None, lock_file: Path | None, form: str) -> None:
    """Show what will be on the machine: phases, steps and every resource with its final values."""
    from imagegen import pipeline
    from imagegen.cli.show import plan_text

    loaded = pipeline.load(config)
    name = _target(loaded, target)
    decision = pipeline.decide(loaded, name, pipeline.read_lock_for(loaded, name, _lock_file(config, lock_file)))
    if form == "json":
        _print_json(decision.plan.as_json())
    else:
        click.echo(plan_text(decision.plan))


@cli.command()
@options.CONFIG
@options.TARGET
@options.LOCK
@options.OUT
def render(config: Path, target: str | None, lock_file: Path | None, out: Path) -> None:
    """Write the tree that Packer builds to OUT/<name>/<id>/tree and print its path.

    \b
    The tree is complete for a plain Packer:
      eval "$(imagegen tools --env)"
      packer build OUT/<name>/<id>/tree
    """
    from imagegen import pipeline

    loaded = pipeline.load(config)
    name = _target(loaded, target)
    decision = pipeline.decide(loaded, name, pipeline.read_lock_for(loaded, name, _lock_file(config, lock_file)))
    click.echo(str(pipeline.write(decision, pipeline.render_tree(decision), out).tree))


@cli.command()
@options.CONFIG
@options.TARGET
@options.LOCK
@options.OUT
@options.LABELS
@click.option(
    "--rehearse", is_flag=True, help="Against stand-ins of the cloud on this machine: no account, nothing leaves it."
)
@click.option("--no-publish", is_flag=True, help="Stop when the image exists in the build region.")
@click.option("--rebuild", is_flag=True, help="Build even where the cloud has an image of this identity.")
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
    lock_file: Path | None,
    out: Path,
    labels: tuple[str, ...],
    rehearse: bool,
    no_publish: bool,
    rebuild: bool,
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """Build the image, publish it and record its manifest.

    Looks up what the lock does not answer, renders, asks Packer whether the tree is right, builds, publishes.
    An image of the same identity is not built twice, and nothing is published twice: run it again after a failure.
    """
    from imagegen import pipeline
    from imagegen.cli.show import print_manifest

    name = _target(pipeline.load(config), target)
    console = _console(plain, quiet)
    if rehearse:
        flags = [flag for flag, on in (("--no-publish", no_publish), ("--rebuild", rebuild)) if on]
        manifest = _rehearse(config, name, out, labels, flags, console)
    else:
        manifest = pipeline.build_and_publish(
            config,
            name,
            lock_file=_lock_file(config, lock_file),
            out=out,
            run=_run(labels),
            console=console,
            rebuild=rebuild,
            with_publish=not no_publish,
        )
    print_manifest(manifest, form)


@cli.command()
@options.CONFIG
@options.TARGET
@options.LOCK
@options.OUT
@options.LABELS
@options.FORMAT
@options.PLAIN
@options.QUIET
def publish(
    config: Path,
    target: str | None,
    lock_file: Path | None,
    out: Path,
    labels: tuple[str, ...],
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """Publish an image that was built before; what is there already is left as it is."""
    from imagegen import pipeline
    from imagegen.cli.show import print_manifest

    name = _target(pipeline.load(config), target)
    file = _lock_file(config, lock_file)
    manifest = pipeline.publish_built(
        config, name, lock_file=file, out=out, run=_run(labels), console=_console(plain, quiet)
    )
    print_manifest(manifest, form)


@cli.command()
@click.option(
    "--env", "as_exports", is_flag=True, help='Print shell exports for a plain packer: eval "$(imagegen tools --env)".'
)
@click.option("--no-build", is_flag=True, help="Only look; do not build what is missing.")
@options.FORMAT
@options.PLAIN
@options.QUIET
def tools(as_exports: bool, no_build: bool, form: str, plain: bool, quiet: bool) -> None:
    """Find Packer and its plugins; where one is missing and Go is there, build the pinned versions in a user cache."""
    from imagegen.build.toolchain import tool_exports_text
    from imagegen.build.tools import find_tools
    from imagegen.cli.show import tools_json, tools_text

    found = find_tools(environ=os.environ, console=_console(plain, quiet), build=not no_build)
    if as_exports:
        click.echo(tool_exports_text(found), nl=False)
    elif form == "json":
        _print_json(tools_json(found))
    else:
        click.echo(tools_text(found))


@cli.group()
def manifest() -> None:
    """Read the manifests of images that were made."""


@manifest.command("list")
@options.OUT
@options.FORMAT
def manifest_list(out: Path, form: str) -> None:
    """List the manifests, newest first."""
    from imagegen.cli.show import manifest_line
    from imagegen.manifest.store import LocalStore

    found = LocalStore(out / "manifests").list()
    if form == "json":
        _print_json([item.model_dump(mode="json") for item in found])
    else:
        for item in found:
            click.echo(manifest_line(item))


@manifest.command("show")
@click.argument("image_id")
@options.OUT
@options.FORMAT
def manifest_show(image_id: str, out: Path, form: str) -> None:
    """Show the manifest of the image whose id begins with IMAGE_ID."""
    from imagegen.cli.show import print_manifest
    from imagegen.errors import ConfigError
    from imagegen.manifest.store import LocalStore

    found = [item for item in LocalStore(out / "manifests").list() if item.image_id.startswith(image_id)]
    if len(found) != 1:
        what = "no manifest" if not found else f"{len(found)} manifests"
        raise ConfigError(
            f"{what} in {out / 'manifests'} of an image {image_id!r}", hint="`imagegen manifest list` shows them"
        )
    print_manifest(found[0], form)


def _rehearse(
    config: Path, target: str, out: Path, labels: tuple[str, ...], flags: list[str], console: Console
) -> ImageManifest:
    from imagegen.cli.labels import parse_labels
    from imagegen.errors import ToolError

    parse_labels(labels)
    # moto asks boto3 while it is imported, and boto3 then reads the user's profile, which need not even be there.
    for variable in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        os.environ.pop(variable, None)
    # Nothing should be found that is not there: moto's sample images, which also take long to load.
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    try:
        from imagegen.rehearsal.rehearse import rehearse_build
    except ModuleNotFoundError as missing:
        message = f"a rehearsal needs {missing.name}, which is not installed"
        raise ToolError(message, hint="pip install 'imagegen[rehearsal]'") from None
    return rehearse_build(config, target, out=out, labels=labels, flags=flags, environ=os.environ, console=console)


def _target(loaded: Any, target: str | None) -> str:  # noqa: ANN401 - pipeline.Loaded, which is not imported before a verb runs
    from imagegen import pipeline
    from imagegen.errors import ConfigError

    known = list(loaded.config.targets.named())
    if target is None and len(known) > 1:
        raise ConfigError(f"{loaded.file} has the targets {', '.join(known)}", hint=f"choose one: --target {known[0]}")
    chosen = target or known[0]
    pipeline.evaluated(loaded, chosen)
    return chosen


def _lock_file(config: Path, lock_file: Path | None) -> Path:
    return lock_file or config.with_name(f"{config.stem}.lock.json")


def _console(plain: bool, quiet: bool) -> Console:
    from imagegen.console import make_console

    gc.enable()
    return make_console(plain=True if plain else None, quiet=quiet)


def _run(labels: tuple[str, ...]) -> Run:
    import datetime

    from imagegen.cli.labels import parse_labels
    from imagegen.providers import Run

    started = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Run(environ=os.environ, labels=parse_labels(labels), started=started)


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, indent=2, sort_keys=True))


def main() -> NoReturn:
    """Run the command line; the one place that turns an error into an exit."""
    try:
        code = cli.main(prog_name="imagegen", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except Exception as error:
        from imagegen.errors import ImagegenError

        if not isinstance(error, ImagegenError):
            raise
        from imagegen.cli.show import error_text

        click.echo(error_text(error), err=True)
        sys.exit(int(error.exit_code))
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
