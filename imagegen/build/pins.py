"""Versions of Packer and its plugins: the lowest that will do, and those that are fetched or built where none is."""

import dataclasses
from typing import Final


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


@dataclasses.dataclass(frozen=True)
class NeededPlugin:
    """A plugin of Packer that a provider needs."""

    name: str
    lowest: str
    """The lowest version that will do."""
    pin: Pin

    @property
    def source(self) -> str:
        """What it is called in `required_plugins` and in `packer plugins install`."""
        return self.pin.module.replace("packer-plugin-", "")


# `packer plugins install --path`, `packer validate` and the machine-readable output are as expected from here on.
LOWEST_PACKER: Final = "1.14.0"

PACKER: Final = Pin("github.com/hashicorp/packer", "v1.16.0", 260, 1.8)
