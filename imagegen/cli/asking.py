"""The words of a command in, what the pipeline wants out: the config loaded, its target, its lock, the run.

Nothing heavy is imported before it is called."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import click

from imagegen.cli.telling import voice
from imagegen.lines import one_line

if TYPE_CHECKING:
    import datetime
    from pathlib import Path

    from imagegen.artifacts.lock import Lock
    from imagegen.build.packer import OnError
    from imagegen.console import Console
    from imagegen.pipeline import Asked, Loaded
    from imagegen.providers import Run


def asked(config: Path, sets: tuple[str, ...]) -> Asked:
    """The config as this command means it."""
    from imagegen.pipeline import Asked

    return Asked(config, today(), sets)


def today() -> datetime.date:
    """The day on which support is judged; SOURCE_DATE_EPOCH makes it another one, as reproducible builds know it."""
    import datetime

    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        return datetime.datetime.now(datetime.UTC).date()
    try:
        return datetime.datetime.fromtimestamp(int(given), datetime.UTC).date()
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(f"SOURCE_DATE_EPOCH={given} is not a number of seconds since 1970") from None


def loaded(asked: Asked) -> Loaded:
    """The config; how many warnings `validate` has for it is printed on standard error."""
    from imagegen import pipeline
    from imagegen.console import counted

    found = pipeline.load(asked)
    if count := len(found.warnings) + len(found.awaited):
        line = f"{asked.file}: {counted(count, 'warning')}: run `imagegen validate` to see them"
        voice().tell(one_line(line))
    return found


def target_of(loaded: Loaded, target: str | None) -> str:
    """The target that is meant; what stands in its way is an error."""
    from imagegen import pipeline
    from imagegen.errors import ConfigError

    known = list(loaded.config.targets.named())
    if target is None and len(known) > 1:
        choices = " or ".join(f"--target {name}" for name in known)
        raise ConfigError(f"{loaded.file} has the targets {', '.join(known)}", hint=f"choose one: {choices}")
    chosen = target or known[0]
    pipeline.evaluated(loaded, chosen)
    return chosen


def lock_file_of(config: Path, lock_file: Path | None, labels: tuple[str, ...]) -> Path:
    """The lock: beside the config unless another is named; never a rehearsal's for a run that is none."""
    from imagegen.cli.rehearsing import refuse_stand_ins

    file = lock_file or config.with_name(f"{config.stem}.lock.json")
    refuse_stand_ins(file, labels)
    return file


def lock_for(request: Asked, loaded: Loaded, target: str, lock_file: Path | None, *, rehearse: bool) -> Lock:
    """The lock of the config; with `rehearse` one that is made of stand-ins now."""
    if not rehearse:
        from imagegen import pipeline

        return pipeline.read_lock_for(loaded, target, lock_file_of(request.file, lock_file, ()))
    from imagegen.cli.rehearsing import refuse_lock_file, rehearse_lock

    refuse_lock_file(lock_file)
    return rehearse_lock(request, target, console=console_for(plain=False, quiet=False))


def console_for(plain: bool, quiet: bool) -> Console:
    """What tells of long work."""
    from imagegen.console import make_console

    gc.enable()
    console = make_console(plain=True if plain else None, quiet=quiet)
    # What the command says from here on is said by it.
    voice().console = console
    return console


def on_error(choice: str, *, rehearse: bool) -> OnError:
    """What becomes of a machine whose build fails; asking needs somebody to ask."""
    from imagegen.build.packer import OnError

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


def run_with(labels: tuple[str, ...]) -> Run:
    """The facts of this run."""
    import datetime
    import secrets

    from imagegen.cli.labels import parse_labels
    from imagegen.providers import Run

    now = datetime.datetime.now(datetime.UTC)
    return Run(
        environ=os.environ,
        labels=parse_labels(labels),
        started=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        # Two runs of the same second are told apart by the end.
        id=f"{now:%Y%m%dt%H%M%Sz}-{secrets.token_hex(3)}",
    )
