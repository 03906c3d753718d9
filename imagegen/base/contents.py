"""Finds the content: Packer templates, guest scripts and steps. In a checkout these are the checkout's folders, in an
installed package the copies inside it."""

import dataclasses
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]

CATALOG: Final = _PACKAGE / "catalog"


@dataclasses.dataclass(frozen=True)
class StepRoot:
    """A folder of steps, and its name in messages."""

    folder: Path
    shown_as: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """The folders from which content is read."""

    packer: Path
    step_roots: tuple[StepRoot, ...]


def _root(name: str) -> Path:
    inside = _PACKAGE / "_data" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


PACKER: Final = _root("packer")
ROLES: Final = _root("ansible-win") / "roles"
SHIPPED: Final = Contents(PACKER, (StepRoot(ROLES, "ansible-win/roles"),))


def read_folder(folder: Path, pattern: str = "**/*") -> dict[str, bytes]:
    """The files below a folder by their paths with forward slashes, in a fixed order."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }
