"""Finds the folders of steps and checks that each is complete. Reads no file, only names."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagegen.contents import StepRoot
from imagegen.errors import ConfigError, Problem

PARTS = ("meta/step.yml", "resources.yml")


@dataclasses.dataclass(frozen=True)
class StepFolder:
    """The folder of one step, and its name in messages."""

    path: Path
    shown_as: str


def step_folders(roots: Sequence[StepRoot]) -> list[StepFolder]:
    """The folders of all steps, ordered by root and name."""
    return [
        StepFolder(path, f"{root.shown_as}/{path.name}")
        for root in roots
        for path in sorted(path for path in root.folder.iterdir() if path.is_dir())
    ]


def check_parts(roots: Sequence[StepRoot]) -> None:
    """Raise one error for all missing parts and all names that two folders have."""
    folders = step_folders(roots)
    problems = [
        Problem(f"{folder.shown_as}/{part}", 0, "", "is missing", f"a step needs {' and '.join(PARTS)}")
        for folder in folders
        for part in PARTS
        if not (folder.path / part).is_file()
    ]
    if problems := problems + list(_same_names(folders)):
        raise ConfigError("the steps cannot be used", problems=problems)


def _same_names(folders: Sequence[StepFolder]) -> Iterator[Problem]:
    first: dict[str, StepFolder] = {}
    for folder in folders:
        other = first.setdefault(folder.path.name, folder)
        if other is not folder:
            yield Problem(folder.shown_as, 0, "", f"{other.shown_as} has the same name", "rename this folder")
