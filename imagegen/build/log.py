"""The log of a build: private, one line a record, each with its time, and without secrets. Writes that file only."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from imagegen.build.packer_output import Record, Said, read_line
from imagegen.build.scrub import scrub

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable
    from pathlib import Path

_MODE: Final = 0o600


class BuildLog:
    """An open log; each line is in the file when `write` returns."""

    def __init__(self, file: Path | bytes, *, append: bool = False) -> None:
        # Always at the end: the keeper of a killed run may still be writing to it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
        descriptor = os.open(file, flags, _MODE)
        os.fchmod(descriptor, _MODE)  # one that was there keeps its mode when opened
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> None:
        """Add a line; what it says has been scrubbed."""
        self._file.write(f"{time.strftime('%H:%M:%SZ', time.gmtime())} {text}\n")
        self._file.flush()

    def __enter__(self) -> BuildLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._file.close()


def log_texts(line: str, secrets: Iterable[str]) -> list[str]:
    """What the log holds of a line of Packer's output."""
    secrets = tuple(secrets)
    match read_line(line):
        case Record() as record:
            texts = [record_text(record)]
        case said:
            texts = [said_text(one) for one in said]
    return [scrub(text, secrets) for text in texts]


def record_text(record: Record) -> str:
    """A record as the log holds it."""
    return " ".join((record.type, record.target, *record.data))


def said_text(said: Said) -> str:
    """A line that was said as the log holds it."""
    return f"{said.target}: {said.text}" if said.target else said.text
