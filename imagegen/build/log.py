"""The log of a build: readable by its owner only, one line a record with its time, no secrets. Writes only that."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from imagegen.build.packer_output import OutputLine, Record, read_line
from imagegen.build.scrub import scrub

_MODE: Final = 0o600


class BuildLog:
    """An open log; each line is in the file when `write` returns."""

    def __init__(self, file: Path | bytes, *, append: bool = False) -> None:
        # Appends, because the supervisor of a killed run may still be writing to it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
        descriptor = os.open(file, flags, _MODE)
        os.fchmod(descriptor, _MODE)  # an existing file keeps its mode when it is opened
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> None:
        """Add a line. The caller has removed secrets from it."""
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
    """The lines of the log for one line of Packer's output."""
    secrets = tuple(secrets)
    match read_line(line):
        case Record() as record:
            texts = [record_text(record)]
        case lines:
            texts = [output_text(output) for output in lines]
    return [scrub(text, secrets) for text in texts]


def record_text(record: Record) -> str:
    """A record as a line of the log."""
    return " ".join((record.type, record.target, *record.data))


def output_text(output: OutputLine) -> str:
    """A line of output as a line of the log."""
    return f"{output.target}: {output.text}" if output.target else output.text
