"""Finds the folders of steps, the shipped ones and the operator's own, and reads them. Reports the problems of all
folders at once."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pydantic

from imagegen.contents import Contents, StepRoot
from imagegen.documents.problems import model_problems, nearest, quoted
from imagegen.documents.yaml import Document, read_yaml
from imagegen.errors import ConfigError, Problem
from imagegen.steps.model import Step, StepMeta

PARTS = ("meta/step.yml", "resources.yml")

_PATH = ("steps_path",)


def with_own_steps(contents: Contents, document: Document) -> Contents:
    """The content with the operator's own steps. Their folder is relative to the file that names it.

    The folder must exist, and no link may lead out of that file's folder."""
    named = document.data.get(*_PATH)
    # The model rejects other types.
    if not isinstance(named, str):
        return contents
    place = document.place(_PATH)
    beside = Path(place.file if place.line else document.file).parent
    folder = beside / named
    if not folder.is_dir():
        problem = document.problem(_PATH, f"the folder {folder} does not exist", "write a path relative to the config")
    elif not folder.resolve().is_relative_to(beside.resolve()):
        problem = document.problem(_PATH, f"{folder} is outside {beside}", "write a path below the config's folder")
    else:
        return dataclasses.replace(contents, step_roots=(*contents.step_roots, StepRoot(folder, str(folder))))
    raise ConfigError("the steps cannot be used", problems=[problem])


def check_folders(roots: Sequence[StepRoot]) -> list[StepRoot]:
    """The folders of all steps, ordered by root and name. One error holds all missing parts and duplicate names. Reads
    no file, only names."""
    folders = [
        StepRoot(path, f"{root.shown_as}/{path.name}")
        for root in roots
        for path in sorted(path for path in root.folder.iterdir() if path.is_dir())
    ]
    problems = [
        Problem(f"{step.shown_as}/{part}", 0, "", "is missing", f"a step needs {' and '.join(PARTS)}")
        for step in folders
        for part in PARTS
        if not (step.folder / part).is_file()
    ]
    first = {step.folder.name: step for step in reversed(folders)}
    problems += [
        Problem(step.shown_as, 0, "", f"{first[step.folder.name].shown_as} has the same name", "rename this folder")
        for step in folders
        if first[step.folder.name] is not step
    ]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
    return folders


def load_steps(roots: Sequence[StepRoot]) -> dict[str, Step]:
    """All steps below these folders, by name."""
    steps: dict[str, Step] = {}
    problems: list[Problem] = []
    for folder in check_folders(roots):
        name = folder.folder.name
        try:
            steps[name] = _load_step(folder.folder, folder.shown_as)
        except ConfigError as error:
            problems += error.problems or [Problem(name, 0, "", error.message, error.hint)]
    # Names are checked only if every folder could be read: a step that cannot be read is not an unknown step.
    if not problems:
        problems = [
            step.described.problem((key, index), f"unknown step {quoted(name)}", nearest(name, sorted(steps)))
            for step in steps.values()
            for key, names in (("after", step.meta.after), ("needs_restart_of", step.meta.needs_restart_of))
            for index, name in enumerate(names)
            if name not in steps
        ]
    if problems:
        raise ConfigError("the steps cannot be used", problems=problems)
    return steps


def _load_step(folder: Path, shown_as: str) -> Step:
    document = read_yaml(folder / "meta/step.yml", f"{shown_as}/meta/step.yml")
    try:
        return Step(folder.name, folder, shown_as, StepMeta.model_validate(document.data), document)
    except pydantic.ValidationError as error:
        raise ConfigError("", problems=model_problems(error, document, StepMeta)) from None


def override_names(steps: dict[str, Step]) -> dict[str, list[str]]:
    """The names of overrides, each with the artifacts whose URL it replaces."""
    names: dict[str, list[str]] = {}
    for step in steps.values():
        for artifact, meta in step.meta.artifacts.items():
            names.setdefault(meta.override, []).append(artifact)
    return names
