"""The errors of the model of Windows: raised by every part of the machine, handled by the engine."""

from __future__ import annotations


class RefusedByWindows(Exception):
    """Windows rejects an operation, with a reason."""


class NoSuchFile(RefusedByWindows, FileNotFoundError):
    """The file does not exist. It is also Python's own error, for callers outside the machine."""
