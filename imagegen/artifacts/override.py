"""An operator's own address for an artifact."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Override:
    """Where the artifact comes from instead, and what its bytes must be if that was said."""

    url: str
    sha256: str | None = None
