"""Finds the step folders and reads them; every fault of every folder is reported at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from imagegen.documents.problems import model_problems
from imagegen.documents.yaml import read_yaml
from imagegen.errors import ConfigError, Problem
from imagegen.steps.model import Step, StepMeta
from imagegen.steps.parts import check_parts, shown, step_folders

if TYPE_CHECKING:
    from pathlib import Path


def load_steps(roles: Path) -> dict[str, Step]:
    """Every step below the folder, by name."""
    steps: dict[str, Step] = {}
    problems: list[Problem] = []
    check_parts(roles)
    for folder in step_folders(roles):
        try:
            steps[folder.name] = _load_step(folder, shown(folder))
        except ConfigError as error:
            problems += error.problems or [Problem(folder.name, 0, "", error.message, error.hint)]
    for step in steps.values():
        problems += [
            Problem(
                f"{step.name}/meta/step.yml", 1, "after", f"there is no step {name!r}", f"steps: {', '.join(steps)}"
            )
            for name in (*step.meta.after, *step.meta.needs_restart_of)
            if name not in steps and not problems
        ]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
    return steps


def _load_step(folder: Path, shown_as: str) -> Step:
    document = read_yaml(folder / "meta/step.yml", f"{shown_as}/meta/step.yml")
    try:
        meta = StepMeta.model_validate(document.data)
    except pydantic.ValidationError as error:
        raise ConfigError("", problems=model_problems(error, document, StepMeta)) from None
    return Step(folder.name, folder, shown_as, meta)


def override_names(steps: dict[str, Step]) -> dict[str, list[str]]:
    """The names that operators override artifacts by, each with the artifacts it moves."""
    names: dict[str, list[str]] = {}
    for step in steps.values():
        for artifact, meta in step.meta.artifacts.items():
            names.setdefault(meta.override, []).append(artifact)
    return names
