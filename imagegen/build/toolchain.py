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

PACKER: Final = Pin("github.com/hashicorp/packer", "v1.16.0", 260)

# The sha256 of HashiCorp's archives of this version, from the formula of HashiCorp's Homebrew tap for it.
PACKER_ARCHIVES: Final = {
    "darwin_amd64": "64c4aa9a3176f89496360843bc8747238c9ad32ddc68bc5281207ae342d45be9",
    "darwin_arm64": "6530042cf8f8a1f96b6607cb22b5be298be53b400cd4a2c81ab8b946964fccda",
    "linux_amd64": "5edcd14ab59b535040c512dbecd6ec9ef976a000b073c19d93e4c431c948581e",
    "linux_arm64": "cf18f03460d92265d49b56befff333e80641d845822799eab04357c39f75b5d7",
}
