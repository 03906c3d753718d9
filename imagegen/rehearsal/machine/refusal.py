"""How the model of Windows says no: one exception, raised by every part of the machine, read by the engine."""

from __future__ import annotations


class RefusedByWindows(Exception):
    """Windows does not do this, and says why."""
