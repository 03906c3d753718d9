r"""Parses the lines that `packer -machine-readable` writes. Pure.

The format is `time,target,type,data…`. A comma in data is written `%!(PACKER_COMMA)`, a line break `\n`. A backslash is
not escaped, so that `C:\new` and a line break look alike. Packer prefixes every line of a build with the build's name,
so a `\n` before such a prefix is a line break, and every other `\n` is a backslash and an n.
"""

import dataclasses
import re
from typing import Final

_COMMA: Final = "%!(PACKER_COMMA)"
_RECORD = re.compile(r"(?P<time>\d+),(?P<target>[^,]*),(?P<type>[a-z][a-z-]*),(?P<data>.*)")
# Packer's question has no line break: its next output follows on the same line.
_QUESTION = re.compile(r"(?:==> [A-Za-z0-9_.-]+: )?\[c\] Clean up and exit, .*?\)\? ")
_PREFIX = re.compile(r"(?P<prefix>(?:==>|   ) (?P<target>[A-Za-z0-9_.-]+): )")


@dataclasses.dataclass(frozen=True)
class OutputLine:
    """One line that Packer, a builder or the guest printed."""

    text: str
    target: str = ""
    error: bool = False


@dataclasses.dataclass(frozen=True)
class Record:
    """One line of the other types: `artifact`, `error-count`, `error`."""

    type: str
    target: str
    data: tuple[str, ...]


def read_line(line: str) -> tuple[OutputLine, ...] | Record:
    """A record, or the lines of a `ui` record. A line in another format is output as it is.

    Other formats are crashes, and all output without -machine-readable, with which Packer cannot ask.
    """
    match = _RECORD.fullmatch(line)
    if match is None:
        line = _QUESTION.sub("", line)
        prefix = _PREFIX.match(line)
        return (OutputLine(line[prefix.end() :], prefix["target"]) if prefix else OutputLine(line),)
    data = tuple(part.replace(_COMMA, ",") for part in match["data"].split(","))
    if match["type"] != "ui" or len(data) != 2:
        return Record(match["type"], match["target"], data)
    return _ui_lines(data[1], error=data[0] == "error")


def plain(text: str) -> str:
    """Data with its line breaks, where no prefix distinguishes them from a backslash and an n."""
    return text.replace("\\r", "").replace("\\n", "\n")


def _ui_lines(text: str, *, error: bool) -> tuple[OutputLine, ...]:
    match = _PREFIX.match(text)
    if match is None:
        return tuple(OutputLine(line, error=error) for line in plain(text).splitlines() if line.strip())
    lines = text[match.end() :].split("\\n" + match["prefix"])
    return tuple(OutputLine(line.removesuffix("\\r"), match["target"], error) for line in lines)
