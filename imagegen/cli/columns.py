"""Lists as the verbs that teach print them: aligned columns for people, JSON for machines."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

from imagegen.cli.show import print_json
from imagegen.documents.problems import closest, nearest
from imagegen.errors import ConfigError
from imagegen.lines import joined

# A terminal that is narrower would break words; one that is wider is not easier to read.
_NARROWEST, _WIDEST = 60, 100


def check_known(what: str, name: str, known: list[str]) -> None:
    if name in known:
        return
    # The whole list is a verb of its own: only what is near is worth a hint.
    listed_by = f"`imagegen {'catalog' if what == 'table' else 'rules'}` lists them"
    raise ConfigError(f"there is no {what} {name!r}", hint=nearest(name, known) if closest(name, known) else listed_by)


def print_as(shown: object, lines: Iterable[str], form: str) -> None:
    if form == "json":
        print_json(shown)
    else:
        click.echo(joined(line for text in lines for line in text.split("\n")))


def columns(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Aligned columns, of which the last wraps."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for *cells, text in rows:
        lead = "".join(f"{cell:<{room}}  " for cell, room in zip(cells, widths, strict=True))
        yield from textwrap.wrap(
            text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
        )


def terminal_width() -> int:
    return min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
