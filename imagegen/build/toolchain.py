"""What `find_tools` answers: where Packer and its plugins are, and what their environment must say. Values only."""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?!\S)")


@dataclasses.dataclass(frozen=True)
class Plugin:
    """One installed plugin."""

    version: str
    path: Path


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """A Packer that is new enough, with the plugins it sees."""

    packer: Path
    packer_version: str
    plugins: Mapping[str, Plugin]
    environment: Mapping[str, str]

    @property
    def path_entry(self) -> Path:
        """The folder that PATH needs for `packer` to be this one."""
        return self.packer.parent


def release(version: str) -> tuple[int, int, int] | None:
    """The three numbers of a release; None for anything else; constraints refuse a pre-release."""
    match = _VERSION.fullmatch(version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def is_at_least(version: str, lowest: str) -> bool:
    """Whether `version` is a release not older than `lowest`."""
    found, wanted = release(version), release(lowest)
    if wanted is None:
        raise ValueError(f"not a version: {lowest}")
    return found is not None and found >= wanted


def tool_exports(tools: Toolchain) -> dict[str, str]:
    """The variables that make a plain `packer` behave as this toolchain; PATH is for the caller to extend."""
    return dict(tools.environment)


def tool_exports_text(tools: Toolchain) -> str:
    """The same as lines for a POSIX shell to evaluate, PATH included."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(tool_exports(tools).items())]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(tools.path_entry))}:"$PATH"']) + "\n"
