"""Drive C of the model machine and its disk. As on the small disks of clouds, there is room behind the drive."""

from __future__ import annotations

import dataclasses
from typing import Final

_GIB: Final = 2**30


@dataclasses.dataclass
class Volume:
    """The partition in bytes."""

    size: int = 30 * _GIB
    largest: int = 50 * _GIB
