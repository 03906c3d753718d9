"""How the model of Windows says no: raised by every part of the machine, read by the engine."""

from __future__ import annotations


class RefusedByWindows(Exception):
    """Windows does not do this, and says why."""


class NoSuchFile(RefusedByWindows, FileNotFoundError):
    """The file is not there: who asks from outside the machine may catch it as Python's own error."""
