"""Finds and reads the step folders. Reports the problems of all folders at once."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pydantic

from imagegen.contents import StepRoot
from imagegen.documents.problems import model_problems, nearest, quoted
from imagegen.documents.yaml import read_yaml
from imagegen.errors import ConfigError, Problem
from imagegen.steps.model import Step, StepMeta
from imagegen.steps.parts import check_parts, step_folders


def load_steps(roots: Sequence[StepRoot]) -> dict[str, Step]:
    """All steps below these folders, by name."""
    steps: dict[str, Step] = {}
    problems: list[Problem] = []
    check_parts(roots)
    for folder in step_folders(roots):
        try:
            steps[folder.path.name] = _load_step(folder.path, folder.shown_as)
        except ConfigError as error:
            problems += error.problems or [Problem(folder.path.name, 0, "", error.message, error.hint)]
    # Names are checked only if every folder could be read: a step that cannot be read is not an unknown step.
    if not problems:
        problems = [problem for step in steps.values() for problem in _find_unknown_steps(step, steps)]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
    return steps


def _find_unknown_steps(step: Step, steps: Mapping[str, Step]) -> Iterator[Problem]:
    for key, names in (("after", step.meta.after), ("needs_restart_of", step.meta.needs_restart_of)):
        for index, name in enumerate(names):
            if name not in steps:
                hint = nearest(name, sorted(steps))
                yield step.described.problem((key, index), f"unknown step {quoted(name)}", hint)


def _load_step(folder: Path, shown_as: str) -> Step:
    document = read_yaml(folder / "meta/step.yml", f"{shown_as}/meta/step.yml")
    try:
        meta = StepMeta.model_validate(document.data)
    except pydantic.ValidationError as error:
        raise ConfigError("", problems=model_problems(error, document, StepMeta)) from None
    return Step(folder.name, folder, shown_as, meta, document)


def override_names(steps: dict[str, Step]) -> dict[str, list[str]]:
    """The names of overrides, each with the artifacts whose URL it replaces."""
    names: dict[str, list[str]] = {}
    for step in steps.values():
        for artifact, meta in step.meta.artifacts.items():
            names.setdefault(meta.override, []).append(artifact)
    return names
