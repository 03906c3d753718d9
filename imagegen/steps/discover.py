"""Finds the step folders and reads them; every fault of every folder is reported at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from imagegen.documents.problems import model_problems
from imagegen.documents.yaml import read_yaml
from imagegen.contents import read_folder
from imagegen.errors import ConfigError, Problem
from imagegen.steps.model import Step, StepMeta

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("meta/step.yml", "resources.yml")


def load_steps(roles: Path) -> dict[str, Step]:
    """Every step below the folder, by name."""
    steps: dict[str, Step] = {}
    problems: list[Problem] = []
    for folder in sorted(path for path in roles.iterdir() if path.is_dir()):
        try:
            steps[folder.name] = _load_step(folder, f"{roles.parent.name}/{roles.name}/{folder.name}")
        except ConfigError as error:
            problems += error.problems or [Problem(folder.name, 0, "", error.message, error.hint)]
    for step in steps.values():
        problems += [
            Problem(f"{step.name}/meta/step.yml", 1, "after", f"there is no step {name!r}", f"steps: {', '.join(steps)}")
            for name in (*step.meta.after, *step.meta.needs_restart_of)
            if name not in steps and not problems
        ]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
    return steps


def _load_step(folder: Path, shown_as: str) -> Step:
    missing = [part for part in PARTS if not (folder / part).is_file()]
    if missing:
        raise ConfigError(
            "",
            problems=[
                Problem(f"{shown_as}/{part}", 0, "", "is missing", "a step has meta/step.yml and resources.yml")
                for part in missing
            ],
        )
    document = read_yaml(folder / "meta/step.yml", f"{shown_as}/meta/step.yml")
    try:
        meta = StepMeta.model_validate(document.data)
    except pydantic.ValidationError as error:
        raise ConfigError("", problems=model_problems(error, document, StepMeta)) from None
    templates = read_folder(folder / "templates") if (folder / "templates").is_dir() else {}
    files = read_folder(folder / "files") if (folder / "files").is_dir() else {}
    return Step(
        name=folder.name,
        meta=meta,
        resources=read_yaml(folder / "resources.yml", f"{shown_as}/resources.yml"),
        templates={name: text.decode() for name, text in templates.items()},
        files=files,
    )


def override_names(steps: dict[str, Step]) -> dict[str, list[str]]:
    """The names that operators override artifacts by, each with the artifacts it moves."""
    names: dict[str, list[str]] = {}
    for step in steps.values():
        for artifact, meta in step.meta.artifacts.items():
            names.setdefault(meta.override, []).append(artifact)
    return names
