"""Drive C of the model machine and its disk. As on the small disks of clouds, there is room behind the drive."""

from __future__ import annotations

import dataclasses
from typing import Final

from imagegen.rehearsal.machine.refusal import RefusedByWindows

_GIB: Final = 2**30
SMALLEST_STEP: Final = 2**20
"""Windows extends a partition by at least this much."""


@dataclasses.dataclass
class Volume:
    """The partition in bytes."""

    size: int = 30 * _GIB
    largest: int = 50 * _GIB
    used: int = 14 * _GIB
    """By Windows and everything that is not counted."""
    holds_deleted: bool = True
    """Whether the disk below still keeps the blocks of deleted files."""

    @property
    def free(self) -> int:
        return self.size - self.used

    def extend(self) -> None:
        if self.largest - self.size < SMALLEST_STEP:
            raise RefusedByWindows("the partition cannot be extended by less than 1 MiB (error 4097)")
        self.size = self.largest
