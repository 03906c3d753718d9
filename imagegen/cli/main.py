"""The verbs. Each parses, makes one call into the pipeline and prints; all exits are in `main`.

Nothing heavy is imported before a verb runs: `imagegen --help` costs what click costs.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

import imagegen
import imagegen.cli.startup
from imagegen.cli import asking, options, teach
from imagegen.cli.doctor import doctor
from imagegen.cli.ending import Verbs, end_without_place, open_closed_streams
from imagegen.cli.janitor import janitor as janitor_verb
from imagegen.cli.manifests import manifest as manifest_group
from imagegen.cli.telling import Voice
from imagegen.lines import one_line

if TYPE_CHECKING:
    from pathlib import Path


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(imagegen.__version__, prog_name="imagegen")
def cli() -> None:
    """Windows Kubernetes node images for Azure and AWS from one declarative config.

    \b
    Try it without a cloud account:
      imagegen validate configs/windows-2022-containerd.yaml
      imagegen build configs/windows-2022-containerd.yaml --target aws --rehearse

    Each verb is a longer part of one story: validate, lock, plan, render, build, publish.
    Exit codes: 0 ok, 2 usage or config, 3 a tool is missing, 4 bytes not as they should be, 5 refused,
    6 build failed, 7 publishing incomplete, 8 manifest conflict, 130 interrupted.
    """


@cli.command(short_help="Check configs.")
@options.CONFIGS
@click.option("--target", metavar="NAME", help="Also check that the config has this target.")
@options.SET
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="text for people, json for machines, github for annotations of a pull request.",
)
def validate(configs: tuple[Path, ...], target: str | None, sets: tuple[str, ...], form: str) -> None:
    """Check configs: their form and every rule. Looks nothing up.

    All problems are told at once, each with file, line, path, the rule's id and a hint.

    \b
      imagegen validate configs/*.yaml
      imagegen validate image.yaml --set kubernetes.version=1.37.0 --format json

    What works and should be known is a warning; so is what this version of imagegen cannot make yet, which
    `imagegen plan` refuses. Exit code 2 where a config is wrong.
    """
    from imagegen.cli.validating import validate_configs

    validate_configs(configs, target, sets, form)


@cli.command(short_help="Pin base images and artifacts.")
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
    from imagegen import pipeline

    console = asking.console_for(plain, quiet)
    loaded = asking.loaded(asking.asked(config, sets))
    targets = [target] if target else list(loaded.config.targets.named())
    for name in targets:
        pipeline.evaluated(loaded, name)
    file = asking.lock_file_of(config, lock_file, labels)
    pipeline.look_up(loaded, targets, file, refresh=refresh, run=asking.run_with(labels), console=console)
    click.echo(one_line(str(file)))


@cli.command(short_help="Show what will be on the machine.")
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.REHEARSED_LOCK
@options.FORMAT
def plan(
    config: Path, target: str | None, sets: tuple[str, ...], lock_file: Path | None, rehearse: bool, form: str
) -> None:
    """Show what will be on the machine: phases, steps and every resource with its final values.

    \b
    It needs a lock, and the lock an account. Without one:
      imagegen plan image.yaml --target aws --rehearse
    """
    from imagegen import pipeline
    from imagegen.cli.show import plan_text, print_json

    request = asking.asked(config, sets)
    loaded = asking.loaded(request)
    name = asking.target_of(loaded, target)
    lock = asking.lock_for(request, loaded, name, lock_file, rehearse=rehearse)
    decision = pipeline.decide(loaded, name, lock)
    if form == "json":
        print_json(decision.plan.as_json())
    else:
        click.echo(plan_text(decision.plan))


@cli.command(short_help="Write the tree for Packer.")
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.REHEARSED_LOCK
@options.OUT
def render(
    config: Path, target: str | None, sets: tuple[str, ...], lock_file: Path | None, rehearse: bool, out: Path
) -> None:
    """Write the tree that Packer builds to OUT/<name>/<id>/tree and print its path.

    \b
    The tree is complete for a plain Packer:
      eval "$(imagegen tools --env)"
      packer build OUT/<name>/<id>/tree

    With --rehearse the tree names the rehearsal's base image and artifacts: read it, but do not build it. It goes to
    OUT/rehearsal/<name>/<id>/tree.
    """
    from imagegen import pipeline

    request = asking.asked(config, sets)
    loaded = asking.loaded(request)
    name = asking.target_of(loaded, target)
    lock = asking.lock_for(request, loaded, name, lock_file, rehearse=rehearse)
    decision = pipeline.decide(loaded, name, lock)
    folder = pipeline.build_folder(decision.plan, out / "rehearsal" if rehearse else out)
    # A Packer that is running may still read the tree that is there.
    with folder.claimed():
        pipeline.write(pipeline.render_tree(decision), folder)
    click.echo(one_line(str(folder.tree)))


@cli.command(short_help="Build, publish and record an image.")
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
    from imagegen import pipeline
    from imagegen.cli import rehearsing
    from imagegen.cli.show import print_manifest

    console = asking.console_for(plain, quiet)
    failing = asking.on_error(on_error, rehearse=rehearse)
    asked = asking.asked(config, sets)
    # The child of a rehearsal says itself that there are warnings.
    name = asking.target_of(pipeline.load(asked) if rehearse else asking.loaded(asked), target)
    rehearsing.check_faults(faults, name, rehearse=rehearse)
    if rehearse:
        told = (("--no-publish", no_publish), ("--rebuild", rebuild), ("--quiet", quiet))
        flags = [*(flag for flag, on in told if on), "--on-error", on_error]
        rehearsing.refuse_lock_file(lock_file)
        manifest = rehearsing.rehearse_build(asked, name, out, labels, flags, faults, console)
    else:
        manifest = pipeline.build_and_publish(
            asked,
            name,
            lock_file=asking.lock_file_of(config, lock_file, labels),
            out=out,
            run=asking.run_with(labels),
            console=console,
            rebuild=rebuild,
            with_publish=not no_publish,
            on_error=failing,
        )
    print_manifest(manifest, form)


@cli.command(short_help="Publish a built image.")
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
    from imagegen import pipeline
    from imagegen.cli.show import print_manifest

    console = asking.console_for(plain, quiet)
    asked = asking.asked(config, sets)
    name = asking.target_of(asking.loaded(asked), target)
    file = asking.lock_file_of(config, lock_file, labels)
    run = asking.run_with(labels)
    manifest = pipeline.publish_built(asked, name, lock_file=file, out=out, run=run, console=console)
    print_manifest(manifest, form)


@cli.command(short_help="Find Packer and its plugins, or get them.")
@click.option(
    "--env", "as_exports", is_flag=True, help='Print shell exports for a plain packer: eval "$(imagegen tools --env)".'
)
@click.option("--no-build", is_flag=True, help="Only look; neither download nor build what is missing.")
@options.FORMAT
@options.PLAIN
@options.QUIET
def tools(as_exports: bool, no_build: bool, form: str, plain: bool, quiet: bool) -> None:
    """Find Packer and its plugins, and put what is missing into a user cache, at fixed versions.

    \b
    Packer is HashiCorp's release (signature and checksum are checked); Packer installs its plugins.
    Where these cannot be reached, Go builds them from source: minutes, once.
    """
    from imagegen.build.toolchain import tool_exports_text
    from imagegen.build.tools import find_tools
    from imagegen.cli.show import print_json, tools_json, tools_text

    found = find_tools(environ=os.environ, console=asking.console_for(plain, quiet), build=not no_build)
    if as_exports:
        click.echo(tool_exports_text(found), nl=False)
    elif form == "json":
        print_json(tools_json(found))
    else:
        click.echo(tools_text(found))


for _verb in (
    *(doctor, teach.init, teach.explain, teach.schema, teach.catalog, teach.rules),
    *(janitor_verb, manifest_group),
):
    cli.add_command(_verb)


def main() -> NoReturn:
    """Run the command line; the one place that turns an error into an exit."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file's name may hold bytes that are no text.
            stream.reconfigure(errors="backslashreplace")
    voice = Voice()
    try:
        code = cli.main(prog_name="imagegen", standalone_mode=False, obj=voice)
        # Here and not when the interpreter ends: what cannot be printed is an error.
        sys.stdout.flush()
    except click.exceptions.Abort:
        voice.tell("interrupted")
        sys.exit(130)
    except click.ClickException as error:
        from imagegen.cli.show import usage_text

        voice.tell(usage_text(error))
        sys.exit(2)
    except OSError as error:
        ended = end_without_place(error)
        if ended is None:
            raise
        sys.exit(ended)
    except Exception as error:
        from imagegen.errors import ImagegenError

        if not isinstance(error, ImagegenError):
            raise
        from imagegen.cli.show import error_text

        voice.tell(error_text(error))
        sys.exit(int(error.exit_code))
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
