"""Prints a command's messages on standard error: problems, and how the command ended.

On a terminal they are coloured. In a log each line begins with the time, like the lines that the console prints.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from imagegen.base.console import Console

_COLOURS: Final = {"error": "red", "warning": "yellow", "hint": "cyan"}
_LEADS: Final = r"(?m)(?:(?<=: )|^)( *)(error|warning|hint):(?= )"


@dataclasses.dataclass
class Messages:
    """Prints messages through the command's console, if it has one. click holds it as the `obj` of the command."""

    console: Console | None = None

    def show(self, text: str) -> None:
        """Print text that is safe to print already."""
        if self.console is None or not self.console.plain:
            click.echo(coloured(text), err=True)
            return
        for line in filter(None, text.split("\n")):
            self.console.tell(line)


def messages() -> Messages:
    """The messages of the command that is running."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Messages)) or Messages()


def coloured(text: str) -> str:
    """The text with `error:`, `warning:` and `hint:` in colour. click removes colours if there is no terminal."""
    if os.environ.get("NO_COLOR"):
        return text
    return re.sub(_LEADS, lambda found: found[1] + click.style(f"{found[2]}:", fg=_COLOURS[found[2]], bold=True), text)
