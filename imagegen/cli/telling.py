"""What a command says on standard error besides its narration: problems, and how it ended.

On a terminal it stands out by colours. In a log each line begins with the time of day, as every other line of a command
that has a console: whoever reads a CI log asks when.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from imagegen.console import Console

_COLOURS: Final = {"error": "red", "warning": "yellow", "hint": "cyan"}
_LEADS: Final = r"(?m)(?:(?<=: )|^)( *)(error|warning|hint):(?= )"


class Voice:
    """By whom it is said: the console, once the command has one. Every command has a voice as click's `obj`."""

    def __init__(self) -> None:
        self.console: Console | None = None

    def tell(self, text: str) -> None:
        """Print text whose lines are harmless already."""
        if self.console is None or not self.console.plain:
            click.echo(coloured(text), err=True)
            return
        for line in filter(None, text.split("\n")):
            self.console.tell(line)


def voice() -> Voice:
    """The voice of the command that is running."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Voice) if context else None
    return found or Voice()


def coloured(text: str) -> str:
    """The text for a terminal: `error:`, `warning:` and `hint:` stand out. click takes colours away elsewhere."""
    if os.environ.get("NO_COLOR"):
        return text
    return re.sub(_LEADS, lambda found: found[1] + click.style(f"{found[2]}:", fg=_COLOURS[found[2]], bold=True), text)
