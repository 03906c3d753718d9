"""An operator's own URL for an artifact."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Override:
    """The URL that replaces the public one, and the sha256 of the artifact if the operator gave one."""

    url: str
    sha256: str | None = None
