"""The words of a command in, what the pipeline wants out: target, lock, run, console, what becomes of a failure."""

from __future__ import annotations

import datetime
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from imagegen import loading, pipeline
from imagegen.build.packer import OnError
from imagegen.cli.labels import parse_labels
from imagegen.cli.rehearsing import refuse_lock_file, refuse_stand_ins, rehearse_lock
from imagegen.cli.show import error_text, print_json, print_manifest
from imagegen.cli.telling import voice
from imagegen.console import Console, make_console
from imagegen.errors import ConfigError, ImagegenError
from imagegen.lines import one_line
from imagegen.providers import RunFacts

if TYPE_CHECKING:
    from imagegen.artifacts.lock import Lock
    from imagegen.loading import ConfigRequest, Loaded
    from imagegen.manifest.model import ImageManifest
    from imagegen.pipeline import PreparedTarget


def choose_targets(loaded: Loaded, target: str | None) -> list[PreparedTarget]:
    """The targets that are meant, of which there are several only where `target` is their cloud."""
    names = loading.find_targets(loaded, target)
    if target is None:
        _refuse_several(loaded, names)
    # What stands in the way of one is told before any is made.
    return [pipeline.prepare_target(loaded, name) for name in names]


def choose_target(loaded: Loaded, target: str | None) -> PreparedTarget:
    """The one target that is meant; what stands in its way is an error."""
    found = choose_targets(loaded, target)
    _refuse_several(loaded, [each.name for each in found])
    return found[0]


def _refuse_several(loaded: Loaded, names: list[str]) -> None:
    if len(names) > 1:
        choices = " or ".join(f"--target {name}" for name in names)
        raise ConfigError(f"{loaded.file} has the targets {', '.join(names)}", hint=f"choose one: {choices}")


def make_each(targets: list[PreparedTarget], make: Callable[[PreparedTarget], ImageManifest], form: str) -> None:
    """Make the image of each target, one after another, and print the manifests.

    Where there are several, one that fails does not keep the others from being made; the worst exit code is the end's.
    """
    if len(targets) == 1:
        print_manifest(make(targets[0]), form)
        return
    made: list[ImageManifest] = []
    codes: list[int] = []
    for target in targets:
        try:
            made.append(make(target))
        except ImagegenError as error:
            voice().tell(error_text(error))
            codes.append(int(error.exit_code))
        else:
            print_manifest(made[-1], form if form == "text" else "none")
    if form == "json":
        print_json([manifest.model_dump(mode="json") for manifest in made])
    if codes:
        raise click.exceptions.Exit(max(codes))


def lock_file_of(config: Path, lock_file: Path | None, labels: tuple[str, ...]) -> Path:
    """The lock: beside the config unless another is named; never a rehearsal's for a run that is none."""
    file = lock_file or config.with_name(f"{config.stem}.lock.json")
    refuse_stand_ins(file, labels)
    return file


def lock_for(request: ConfigRequest, target: PreparedTarget, lock_file: Path | None, *, rehearse: bool) -> Lock:
    """The lock of the config; with `rehearse` one that is made of stand-ins now."""
    if not rehearse:
        return pipeline.read_lock_for(target, lock_file_of(request.file, lock_file, ()))
    refuse_lock_file(lock_file)
    return rehearse_lock(request, target.name, console=console_for(plain=False, quiet=False))


def console_for(plain: bool, quiet: bool) -> Console:
    """What tells of long work."""
    console = make_console(plain=True if plain else None, quiet=quiet)
    # What the command says from here on is said by it.
    voice().console = console
    return console


def on_error(choice: str, *, rehearse: bool) -> OnError:
    """What becomes of a machine whose build fails; asking needs somebody to ask."""
    if rehearse and choice == "ask":
        raise click.UsageError("a rehearsal does not ask: use --on-error=abort, or leave it out")
    if choice != "ask":
        return OnError(choice)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("--on-error=ask needs a terminal: use --on-error=abort to keep the machine")
    return OnError(choice, _ask_what_to_do)


def _ask_what_to_do(step: str) -> str:
    """A letter of Packer's own question; the end of the input is the safe one."""
    question = f"{step} failed: [c] clean up, [a] abort and keep the machine, [r] run the step again? "
    answer = ""
    while answer not in ("c", "a", "r"):
        click.echo(one_line(question), err=True, nl=False)
        answer = (sys.stdin.readline() or "c").strip().lower()
    return answer


def run_with(labels: tuple[str, ...]) -> RunFacts:
    """The facts of this run."""
    now = datetime.datetime.now(datetime.UTC)
    return RunFacts(
        environ=os.environ,
        labels=parse_labels(labels),
        started=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        # Two runs of the same second are told apart by the end.
        id=f"{now:%Y%m%dt%H%M%Sz}-{secrets.token_hex(3)}",
    )
