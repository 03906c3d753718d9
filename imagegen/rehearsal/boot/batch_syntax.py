"""The syntax of one line of cmd: commands, what joins them, and where their output goes. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Refuse = Callable[[str], Exception]


@dataclasses.dataclass(frozen=True)
class Redirect:
    """Where a stream goes: 1 is standard output, 2 standard error. `target` is a path, `nul`, `&1` or `&2`."""

    stream: int
    target: str
    appends: bool


@dataclasses.dataclass(frozen=True)
class Command:
    """One command, with its quotes."""

    text: str
    redirects: tuple[Redirect, ...] = ()


# Parts of a line: a quoted text, an escaped character, an operator, anything else.
_PART = re.compile(
    r'"[^"]*"?|\^.?|(?<![^\s&|])[12]?>>?(?:\s*&[12])?|>>?(?:\s*&[12])?|&&|\|\||[&|<()]|[^"^&|<>()]', re.DOTALL
)
_TARGET = re.compile(r'\s*("[^"]*"|[^\s&|<>"]+)\s*')


def parse_line(line: str, refuse: Refuse) -> list[list[list[Command]]]:
    """The commands of a line: parts that `&` joins, of parts that `||` joins, of commands that `&&` joins."""
    if re.match(r"(?i)rem(\s|$)", line):
        return [[[Command(line)]]]  # a remark takes the whole line
    parts = _Line(line, refuse)
    return parts.read()


class _Line:
    def __init__(self, line: str, refuse: Refuse) -> None:
        self._line = line
        self._refuse = refuse
        self._text = ""
        self._redirects: list[Redirect] = []
        self._found: list[list[list[Command]]] = [[[]]]

    def read(self) -> list[list[list[Command]]]:
        at = 0
        while match := _PART.match(self._line, at):
            at = self._take(match[0], match.end())
        self._end_command()
        return [[chain for chain in alternatives if chain] for alternatives in self._found]

    def _take(self, part: str, at: int) -> int:
        """Take one part of the line. Returns where the next one begins."""
        if part in ("&", "&&", "||"):
            self._end_command()
            if part == "&":
                self._found.append([[]])
            elif part == "||":
                self._found[-1].append([])
        elif part in ("|", "<") or (part == "(" and not self._text.strip()):
            raise self._refuse(f"'{part}'")
        elif ">" in part and not part.startswith(('"', "^")):
            return self._take_redirect(part, at)
        else:
            self._text += part[1:] if part.startswith("^") else part
        return at

    def _take_redirect(self, part: str, at: int) -> int:
        stream = 2 if part.startswith("2") else 1
        if "&" in part:
            self._redirects.append(Redirect(stream, f"&{part[-1]}", appends=False))
            return at
        match = _TARGET.match(self._line, at)
        if match is None:
            raise self._refuse("a redirection without a file")
        target = match[1].strip('"')
        self._redirects.append(Redirect(stream, target, ">>" in part))
        return match.end()

    def _end_command(self) -> None:
        if self._text.strip() or self._redirects:
            if not self._text.strip():
                raise self._refuse("a redirection without a command")
            # What stands before a redirection keeps its spaces: `echo a > b` writes "a ".
            self._found[-1][-1].append(Command(self._text.lstrip(), tuple(self._redirects)))
        self._text, self._redirects = "", []
