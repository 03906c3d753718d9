"""What stands between the transport and whoever carries a command out. Values only; touches nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

Write = Callable[[bytes], None]
"""Takes standard output as it comes, so that the caller sees a long command's lines while it runs."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended. `restarts`: the machine goes down as soon as the caller has this result."""

    exit_code: int = 0
    stderr: bytes = b""
    restarts: bool = False


class Guest(Protocol):
    """Carries commands out. One call per command, each in a thread of its own."""

    def run(self, command: str, write: Write) -> Result:
        """Carry `command` out and say how it ended."""

    def restarted(self) -> None:
        """The machine went down for the restart that a result announced: nothing of before runs any more."""
