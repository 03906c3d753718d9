"""Which folders are steps, and whether each has its parts. Looks at names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("meta/step.yml", "resources.yml")


def step_folders(roles: Path) -> list[Path]:
    """The folders of the steps, by name."""
    return sorted(path for path in roles.iterdir() if path.is_dir())


def shown(folder: Path) -> str:
    """A step's folder as messages name it."""
    return f"ansible-win/roles/{folder.name}"


def check_parts(roles: Path) -> None:
    """Every part that is missing, at once."""
    problems = [
        Problem(f"{shown(folder)}/{part}", 0, "", "is missing", f"a step has {' and '.join(PARTS)}")
        for folder in step_folders(roles)
        for part in PARTS
        if not (folder / part).is_file()
    ]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
