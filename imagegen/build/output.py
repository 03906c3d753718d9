r"""Parses the lines that `packer -machine-readable` writes, removes secrets from them, and logs them.

The format is `time,target,type,data…`. A comma in data is written `%!(PACKER_COMMA)`, a line break `\n`. A backslash is
not escaped, so that `C:\new` and a line break look alike. Packer prefixes every line of a build with the build's name,
so a `\n` before such a prefix is a line break, and every other `\n` is a backslash and an n.

The supervisor imports this module, so it imports little.
"""

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HIDDEN: Final = "***"
# Before each line with a part of the machine's logs (`logs.py`), which no log has.
LOGS: Final = "imagegen-logs: "

_COMMA: Final = "%!(PACKER_COMMA)"
_RECORD = re.compile(r"(?P<time>\d+),(?P<target>[^,]*),(?P<type>[a-z][a-z-]*),(?P<data>.*)")
# Packer's question has no line break: its next output follows on the same line.
_QUESTION = re.compile(r"(?:==> [A-Za-z0-9_.-]+: )?\[c\] Clean up and exit, .*?\)\? ")
_PREFIX = re.compile(r"(?P<prefix>(?:==>|   ) (?P<target>[A-Za-z0-9_.-]+): )")

# Signatures and session tokens in URLs that grant access.
_SIGNED = re.compile(r"(?i)\b(sig|X-Amz-Signature|X-Amz-Security-Token|X-Amz-Credential)(=|%3D)[^&\s\"'<>,;|]+")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s\"'@]+@")
# As HCL or JSON writes it (quoted, with escapes), or as `name=value`.
_PASSWORD = re.compile(
    r"(?i)\b(winrm_?password|client_secret|secret_key|administrator_?password)(\\?[\"']?\s*[:=]\s*)"
    r"(\\?\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"',]+)"
)
_AUTHORIZATION = re.compile(r"(?i)\b(Bearer|Basic|Negotiate)\s+[A-Za-z0-9+/=._~-]{8,}")


@dataclasses.dataclass(frozen=True)
class OutputLine:
    """One line that Packer, a builder or the guest printed."""

    text: str
    target: str = ""
    error: bool = False

    @property
    def logged(self) -> str:
        """This line in the log."""
        return f"{self.target}: {self.text}" if self.target else self.text


@dataclasses.dataclass(frozen=True)
class Record:
    """One line of the other types: `artifact`, `error-count`, `error`."""

    type: str
    target: str
    data: tuple[str, ...]

    @property
    def logged(self) -> str:
        """This record in the log."""
        return " ".join((self.type, self.target, *self.data))


def read_line(line: str) -> tuple[OutputLine, ...] | tuple[Record]:
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
        return (Record(match["type"], match["target"], data),)
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


def scrub(line: str, secrets: Sequence[str] = ()) -> str:
    """The line without the known secrets, and without anything that looks like a secret."""
    for secret in secrets:
        line = line.replace(secret, HIDDEN)
    line = _SIGNED.sub(rf"\1\2{HIDDEN}", line)
    line = _USERINFO.sub(rf"\1{HIDDEN}@", line)
    line = _PASSWORD.sub(rf"\1\2{HIDDEN}", line)
    return _AUTHORIZATION.sub(rf"\1 {HIDDEN}", line)


class BuildLog(contextlib.AbstractContextManager["BuildLog"]):
    """An open log, readable by its owner only: one line a record with its time. Each line is written at once."""

    def __init__(self, file: Path | str, *, append: bool = False) -> None:
        # Appends, because the supervisor of a killed run may still be writing to it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
        descriptor = os.open(file, flags, 0o600)
        os.fchmod(descriptor, 0o600)  # an existing file keeps its mode when it is opened
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> None:
        """Add a line. The caller has removed secrets from it."""
        self._file.write(f"{time.strftime('%H:%M:%SZ', time.gmtime())} {text}\n")
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.close()


def log_texts(line: str, secrets: Sequence[str]) -> list[str]:
    """The lines of the log for one line of Packer's output."""
    return [scrub(part.logged, secrets) for part in read_line(line) if LOGS not in part.logged]
