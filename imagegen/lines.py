"""Makes a value safe to print: one line, without control characters, and no command to a CI runner that reads the log.

Whatever people read goes through here, last: names of files, keys and values are chosen by whoever wrote the config,
and a newline in one of them would let it write lines of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# Everything that ends a line, moves a cursor, turns the direction of a text, hides, or is no character; not the tab.
_UNSEEN: Final = (
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)

# What GitHub's runner takes for a command: `::` at a line's start, `##[` anywhere.
# https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
_COMMAND: Final = r"^(\s*):(?=:)"
_FORMER_COMMAND: Final = "##["


def one_line(text: str) -> str:
    r"""The text as one line: a newline is shown as `\n`, an escape character as `\x1b`."""
    # Compiled when they are first needed, which is seldom: what is printable is none of these.
    if not text.isprintable():
        text = re.sub(_UNSEEN, _escaped, text)
    if text.lstrip().startswith("::"):
        text = re.sub(_COMMAND, r"\1\\x3a", text)
    return text.replace(_FORMER_COMMAND, r"##\x5b")


def joined(lines: Iterable[str]) -> str:
    """A text of several lines, each safe."""
    return "\n".join(map(one_line, lines))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
