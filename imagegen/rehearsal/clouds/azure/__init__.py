"""The stand-in of Azure: a small, strict Resource Manager (ARM), its sign-in and its key vaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

IMPORT_VARIABLES: Final[Mapping[str, str | None]] = {}
