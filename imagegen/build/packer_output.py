r"""Reads what `packer -machine-readable` writes: one line in, one record out. Pure.

The format is `time,target,type,data…`. A comma in data is written `%!(PACKER_COMMA)`, a line break `\n`; a backslash is
not escaped, so that `C:\new` and a line break look alike. What a build says is prefixed with its name on every line, so
there a line break is known by the prefix that follows it, and every other `\n` is what it looks like.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

_COMMA: Final = "%!(PACKER_COMMA)"
_RECORD = re.compile(r"(?P<time>\d+),(?P<target>[^,]*),(?P<type>[a-z][a-z-]*),(?P<data>.*)")
# What Packer writes without a line break when it asks; what it says next follows on the same line.
_QUESTION = re.compile(r"(?:==> [A-Za-z0-9_.-]+: )?\[c\] Clean up and exit, .*?\)\? ")
_PREFIX = re.compile(r"(?P<prefix>(?:==>|   ) (?P<target>[A-Za-z0-9_.-]+): )")


@dataclasses.dataclass(frozen=True)
class Said:
    """One line that Packer, a builder or the guest said."""

    text: str
    target: str = ""
    error: bool = False


@dataclasses.dataclass(frozen=True)
class Record:
    """One line of the other types: `artifact`, `error-count`, `error`."""

    type: str
    target: str
    data: tuple[str, ...]


def read_line(line: str) -> tuple[Said, ...] | Record:
    """A record, or the lines that a `ui` record holds. A line of another shape was said as it is.

    Such are crashes, and everything that Packer says to people: it cannot ask and be machine-readable at once.
    """
    match = _RECORD.fullmatch(line)
    if match is None:
        line = _QUESTION.sub("", line)
        spoken = _PREFIX.match(line)
        return (Said(line[spoken.end() :], spoken["target"]) if spoken else Said(line),)
    data = tuple(part.replace(_COMMA, ",") for part in match["data"].split(","))
    if match["type"] != "ui" or len(data) != 2:
        return Record(match["type"], match["target"], data)
    return _said(data[1], error=data[0] == "error")


def plain(text: str) -> str:
    """Data with its line breaks, where no prefix tells them from a backslash and an n."""
    return text.replace("\\r", "").replace("\\n", "\n")


def _said(text: str, *, error: bool) -> tuple[Said, ...]:
    match = _PREFIX.match(text)
    if match is None:
        return tuple(Said(line, error=error) for line in plain(text).splitlines() if line.strip())
    lines = text[match.end() :].split("\\n" + match["prefix"])
    return tuple(Said(line.removesuffix("\\r"), match["target"], error) for line in lines)
