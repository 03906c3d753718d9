"""Packer and its plugins: the versions that are needed, and those that were found. Values only."""

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
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


@dataclasses.dataclass(frozen=True)
class Plugin:
    """One installed plugin."""

    version: str
    path: Path


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """A Packer that is new enough, with its plugins."""

    packer: Path
    packer_version: str
    plugins: Mapping[str, Plugin]
    environment: Mapping[str, str]


def tool_exports_text(tools: Toolchain) -> str:
    """The variables that make a plain `packer` use this toolchain, and its PATH, as lines for a POSIX shell."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(tools.environment.items())]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(tools.packer.parent))}:"$PATH"']) + "\n"


# `packer plugins install --path`, `packer validate` and the machine-readable output are as expected from here on.
LOWEST_PACKER: Final = "1.14.0"

PACKER: Final = Pin("github.com/hashicorp/packer", "v1.16.0", 260, 1.8)
