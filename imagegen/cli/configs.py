"""The config of a command: which file, judged on which day, loaded, and its target."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING

import click

from imagegen import pipeline
from imagegen.cli.telling import voice
from imagegen.errors import ConfigError
from imagegen.lines import counted, one_line
from imagegen.pipeline import Asked, Loaded

if TYPE_CHECKING:
    from pathlib import Path


def config_request(config: Path, sets: tuple[str, ...]) -> Asked:
    """The config as this command means it."""
    return Asked(config, today(), sets)


def today() -> datetime.date:
    """The day on which support is judged; SOURCE_DATE_EPOCH makes it another one, as reproducible builds know it."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        return datetime.datetime.now(datetime.UTC).date()
    try:
        return datetime.datetime.fromtimestamp(int(given), datetime.UTC).date()
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(f"SOURCE_DATE_EPOCH={given} is not a number of seconds since 1970") from None


def load_config(request: Asked) -> Loaded:
    """The config; how many warnings `validate` has for it is printed on standard error."""
    found = pipeline.load(request)
    if count := len(found.warnings) + len(found.awaited):
        line = f"{request.file}: {counted(count, 'warning')}: run `imagegen validate` to see them"
        voice().tell(one_line(line))
    return found


def choose_target(loaded: Loaded, target: str | None) -> str:
    """The target that is meant; what stands in its way is an error."""
    known = list(loaded.config.targets.named())
    if target is None and len(known) > 1:
        choices = " or ".join(f"--target {name}" for name in known)
        raise ConfigError(f"{loaded.file} has the targets {', '.join(known)}", hint=f"choose one: {choices}")
    chosen = target or known[0]
    pipeline.evaluated(loaded, chosen)
    return chosen
