"""Prints lists that are longer than a few lines: aligned columns, and a hint for a name that is not in the list."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from imagegen.base.errors import ConfigError
from imagegen.config.problems import closest, nearest, quoted

# A narrower terminal would break words, and longer lines are hard to read.
_NARROWEST, _WIDEST = 60, 100


def check_known(what: str, name: str, known: list[str], verb: str) -> None:
    """Reject an unknown name. The hint has the name that was probably meant, or else the verb that lists all names."""
    if name not in known:
        hint = nearest(name, known) if closest(name, known) else f"`imagegen {verb}` lists them"
        raise ConfigError(f"unknown {what} {quoted(name)}", hint=hint)


def columns(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Aligned columns. Only the last one wraps."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, text in rows:
        lead = "".join(f"{cell:<{room}}  " for cell, room in zip(cells, widths, strict=True))
        yield from textwrap.wrap(
            text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
        )


def terminal_width() -> int:
    """How many characters a line may have."""
    return min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
