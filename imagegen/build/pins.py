"""Facts about Packer and its plugins: what is the least that works, and what is built where nothing is installed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Pin:
    """One Go module that is built at one version."""

    module: str
    version: str
    build_s: int
    """How long it takes to build on two cores with an empty Go cache; measured."""
    memory_gb: float
    """What its build takes of memory at most; measured."""

    @property
    def name(self) -> str:
        return self.module.rpartition("/")[2]


# `packer plugins install --path`, `packer validate` and the machine-readable output are as expected from here on.
LOWEST_PACKER: Final = "1.14.0"

PACKER: Final = Pin("github.com/hashicorp/packer", "v1.16.0", 260, 1.8)
# azure 1.4.5 is the newest that has a Go module version: the v2 line did not change its module path.
PLUGINS: Final[Mapping[str, Pin]] = {
    "amazon": Pin("github.com/hashicorp/packer-plugin-amazon", "v1.8.2", 136, 3.2),
    "azure": Pin("github.com/hashicorp/packer-plugin-azure", "v1.4.5", 82, 0.9),
}
# The plugin's name in `required_plugins` and in `packer plugins install`.
SOURCES: Final[Mapping[str, str]] = {"amazon": "github.com/hashicorp/amazon", "azure": "github.com/hashicorp/azure"}
LOWEST_PLUGINS: Final[Mapping[str, str]] = {"amazon": "1.2.8", "azure": "1.4.5"}
