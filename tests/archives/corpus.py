"""What the archives of these tests have in common."""

from __future__ import annotations

from typing import NamedTuple


class Hostile(NamedTuple):
    """An archive that two readers read in two ways, and why imagegen refuses it."""

    data: bytes
    reason: str
