"""What a cloud's image of Windows has beside Windows itself, and what the cloud's generalise script does with it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.machine.windows import Machine

# name, display name, command, start, depends on
StockService = tuple[str, str, str, int, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Agents:
    """The cloud's own programs in the machine."""

    services: tuple[StockService, ...]
    files: tuple[str, ...]
    folders: tuple[str, ...]
    check: Callable[[Machine], None]
    """Refuses to seal where they are not ready."""
    reset: Callable[[Machine], None] | None = None
    """What becomes of them when the machine is sealed."""
