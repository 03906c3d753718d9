"""The result of `find_tools`: the paths of Packer and its plugins, and their environment. Values only."""

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path

from packaging.version import InvalidVersion, Version


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

    @property
    def path_entry(self) -> Path:
        """The folder to put first on PATH, so that `packer` is this one."""
        return self.packer.parent


def release(version: str) -> Version | None:
    """The version of a release; None for anything else, because Packer's constraints reject a pre-release."""
    try:
        found = Version(version)
    except InvalidVersion:
        return None
    return None if found.is_prerelease else found


def is_at_least(version: str, lowest: str) -> bool:
    """Whether `version` is a release not older than `lowest`."""
    found = release(version)
    return found is not None and found >= Version(lowest)


def tool_exports(tools: Toolchain) -> dict[str, str]:
    """The variables that make a plain `packer` use this toolchain. The caller extends PATH."""
    return dict(tools.environment)


def tool_exports_text(tools: Toolchain) -> str:
    """The same variables and PATH as lines for a POSIX shell."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(tool_exports(tools).items())]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(tools.path_entry))}:"$PATH"']) + "\n"
