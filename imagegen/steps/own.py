"""A config's own steps: the folder that it names, and the values of their options. Looks at names only."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.contents import StepRoot
from imagegen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.contents import Contents
    from imagegen.documents.yaml import Document
    from imagegen.steps.model import OptionValue, Step

_PATH = ("steps_path",)


def with_own_steps(contents: Contents, document: Document) -> Contents:
    """The content and the config's own steps, which lie beside the file that names their folder.

    The folder must be there, and no link may lead out of that file's folder."""
    named = document.data.get(*_PATH)
    # What is no text, the model refuses.
    if not isinstance(named, str):
        return contents
    place = document.place(_PATH)
    beside = Path(place.file if place.line else document.file).parent
    folder = beside / named
    if not folder.is_dir():
        problem = document.problem(_PATH, f"there is no folder {folder}", "name a folder beside the config")
    elif not folder.resolve().is_relative_to(beside.resolve()):
        problem = document.problem(_PATH, f"{folder} leads out of {beside}", "name a folder beside the config")
    else:
        return dataclasses.replace(contents, step_roots=(*contents.step_roots, StepRoot(folder, str(folder))))
    raise ConfigError("the steps cannot be used", problems=[problem])


def options_of(step: Step, given: Mapping[str, Mapping[str, OptionValue]]) -> dict[str, OptionValue | None]:
    """The value of each option of a step."""
    defaults = {name: declared.default for name, declared in step.meta.options.items()}
    return {**defaults, **given.get(step.name, {})}
