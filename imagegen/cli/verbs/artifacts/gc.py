"""`imagegen artifacts gc`: lists what the cache need not keep, and removes it with `--delete`."""

import re
import time
from collections.abc import Callable
from typing import Final

import click

from imagegen.base.errors import PublishError
from imagegen.base.lines import counted, shown_size
from imagegen.cli import arguments, options
from imagegen.cli.output import print_as
from imagegen.cli.verbs.artifacts.list import file_json, file_line
from imagegen.fetch.cache import CachedFile

_UNITS: Final = {"h": 3600, "d": 86400, "w": 7 * 86400, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _number_of(*units: str) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Reads a number with one of the units."""

    def read(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
        match = re.fullmatch(rf"([0-9]{{1,6}})({'|'.join(units)})", text or "")
        if text is not None and match is None:
            raise click.BadParameter(f"{text!r} is not a number with a unit ({', '.join(units)}), such as 5{units[0]}")
        return int(match[1]) * _UNITS[match[2]] if match else None

    return read


@click.command("gc")
@click.option("--older-than", callback=_number_of("d", "h", "w"), metavar="30d", help="Files not used for so long.")
@click.option(
    "--to-size",
    callback=_number_of("GB", "MB", "TB"),
    metavar="5GB",
    help="The least used files, until the others have this size.",
)
@click.option("--all", "everything", is_flag=True, help="All files.")
@click.option("--delete", is_flag=True, help="Remove them, instead of listing them.")
@options.FORMAT
def artifacts_gc(older_than: int | None, to_size: int | None, everything: bool, delete: bool, form: str) -> None:
    """List the files that leave the cache by one of --older-than, --to-size and --all; remove them with --delete.

    A file that a running imagegen uses is never removed. No lock needs the cache: it only saves downloads.
    """
    if (older_than is not None) + (to_size is not None) + everything != 1:
        raise click.UsageError("choose one of --older-than, --to-size and --all")
    run = arguments.open_run()
    cache = run.cache
    going = _choose(cache.files(), older_than, 0 if everything else to_size)
    stuck = [file for file in going if delete and not cache.remove(file.sha256)]
    print_as(form, [*map(file_json, going)], map(file_line, going))
    gone = [file for file in going if file not in stuck]
    what = f"{counted(len(gone), 'file')}, {shown_size(sum(file.size for file in gone))}"
    run.console.say(f"removed {what}" if delete else f"{what} may go: the same command with --delete removes them")
    if stuck:
        raise PublishError(
            f"{counted(len(stuck), 'file')} could not be removed: another imagegen uses them",
            details=[file.sha256 for file in stuck],
            hint="run it again when that imagegen has ended",
        )


def _choose(files: list[CachedFile], older_than: int | None, to_size: int | None) -> list[CachedFile]:
    """The files to remove. They are in the order of their last use."""
    if older_than is not None:
        return [file for file in files if time.time() - file.used > older_than]
    left, going = sum(file.size for file in files), []
    for file in files:
        if left <= (to_size or 0):
            break
        going.append(file)
        left -= file.size
    return going
