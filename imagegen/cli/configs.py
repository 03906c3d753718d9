"""The config of a command: which file, judged on which day, and loaded."""

import datetime
import os
from pathlib import Path

import click

from imagegen import loading
from imagegen.cli.telling import voice
from imagegen.lines import counted, one_line
from imagegen.loading import ConfigRequest, Loaded


def config_request(config: Path, sets: tuple[str, ...]) -> ConfigRequest:
    """The config as this command means it."""
    return ConfigRequest(config, today(), sets)


def today() -> datetime.date:
    """The day on which support is judged; SOURCE_DATE_EPOCH makes it another one, as reproducible builds know it."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        return datetime.datetime.now(datetime.UTC).date()
    try:
        return datetime.datetime.fromtimestamp(int(given), datetime.UTC).date()
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(f"SOURCE_DATE_EPOCH={given} is not a number of seconds since 1970") from None


def load_config(request: ConfigRequest) -> Loaded:
    """The config; how many warnings `validate` has for it is printed on standard error."""
    found = loading.load(request)
    if count := len(found.warnings) + len(found.unimplemented):
        line = f"{request.file}: {counted(count, 'warning')}: run `imagegen validate` to see them"
        voice().tell(one_line(line))
    return found
