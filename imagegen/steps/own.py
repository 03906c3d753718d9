"""The operator's own steps: their folder and the values of their options. Reads no file, only names."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from imagegen.contents import Contents, StepRoot
from imagegen.documents.yaml import Document
from imagegen.errors import ConfigError
from imagegen.steps.model import OptionValue, Step

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


def options_of(step: Step, given: Mapping[str, Mapping[str, OptionValue]]) -> dict[str, OptionValue | None]:
    """The values of a step's options, with their defaults."""
    defaults = {name: declared.default for name, declared in step.meta.options.items()}
    return {**defaults, **given.get(step.name, {})}
