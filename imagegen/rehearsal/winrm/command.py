"""The interface between the transport and the guest that runs a command. Values only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

Write = Callable[[bytes], None]
"""Receives standard output at once, so that the caller sees the lines of a long command while it runs."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a command. If `restarts`, the machine restarts as soon as the caller has the result."""

    exit_code: int = 0
    stderr: bytes = b""
    restarts: bool = False


class Guest(Protocol):
    """Runs commands. Each call is in a thread of its own."""

    def run(self, command: str, write: Write) -> Result:
        """Run a command and return its result."""

    def disconnected(self) -> None:
        """The connections were lost while a command runs. The command continues, and nobody gets its result."""

    def restarted(self) -> None:
        """The machine went down for the restart that a result announced: nothing of before runs any more."""
