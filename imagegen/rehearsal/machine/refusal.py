"""The errors of the model of Windows and of the engine, and the exit codes of the engine (docs/guest.md)."""

from __future__ import annotations

import enum


class RefusedByWindows(Exception):
    """Windows rejects an operation, with a reason."""


class NoSuchFile(RefusedByWindows, FileNotFoundError):
    """The file does not exist. It is also Python's own error, for callers outside the machine."""


class Exit(enum.IntEnum):
    """The exit codes of the entry script."""

    DONE = 0
    FAULT = 1
    ARGUMENTS = 2
    WRONG_BYTES = 4
    DRIFT = 5
    FAILED = 6
    RESTART_DUE = 3010


class StopError(Exception):
    """Ends the run of the engine."""

    def __init__(self, code: Exit, reason: str, *, about: str = "") -> None:
        """`about` is the name of an artifact."""
        super().__init__(reason)
        self.code, self.reason, self.about = code, reason, about


class KilledError(Exception):
    """Something ended the engine's process: no more code of it runs."""
