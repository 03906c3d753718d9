"""Reads a config file with the files that it extends and the values of --set. Reports every problem at once, with its
place and the nearest known name."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import pydantic

from imagegen.base.errors import ConfigError, Problem
from imagegen.catalog.facts import hint_for
from imagegen.config.compose import compose
from imagegen.config.fields import is_string
from imagegen.config.model import ImageConfig
from imagegen.config.problems import model_problems, nearest, place_of, quoted
from imagegen.config.yaml import Document, YamlPath

Names = Callable[[Document], Collection[str]]
"""Finds the known names, given a config: its steps decide which names there are."""


@dataclasses.dataclass(frozen=True)
class Read:
    """A config as far as it is valid. If some values are invalid, `config` is the config without them, so that the same
    run can check the rules. `unread` are the sections with invalid values: rules report nothing about them."""

    document: Document
    config: ImageConfig | None
    problems: tuple[Problem, ...]
    unread: frozenset[str]


def read_config(path: Path, sets: Sequence[str], *, overrides: Names, steps: Names) -> Read:
    """Read a config. The names of overrides and steps are looked up only if the config uses some."""
    document = compose(path, sets, is_text=is_string)
    if not isinstance(document.data, dict):
        raise ConfigError(
            f"{document.file} is not a config", problems=[document.problem((), "must be a map of keys and values")]
        )
    if not document.data:
        raise ConfigError(f"{document.file} is empty", hint="run `imagegen init`, or copy one of configs/")
    problems = [
        *_unknown_names(document, ("overrides",), "override", overrides),
        *_unknown_names(document, ("timeouts", "steps"), "step", steps),
    ]
    try:
        return Read(document, ImageConfig.model_validate(document.data), tuple(problems), frozenset())
    except pydantic.ValidationError as error:
        problems += [
            _add_hint(problem, functools.partial(overrides, document))
            for problem in model_problems(error, document, ImageConfig)
        ]
        # A section that lacks a key is invalid as a whole.
        invalid = {
            place_of(item, document)[: -1 if item["type"] == "missing" else None]
            for item in error.errors(include_url=False)
        }
        # A list with an invalid item is removed as a whole: its other items would move.
        lists = {path[:index] for path in invalid for index, part in enumerate(path) if isinstance(part, int)}
        try:
            config = ImageConfig.model_validate(_remove(document.data, invalid | lists, ()))
        except pydantic.ValidationError:
            config = None
        return Read(document, config, tuple(problems), frozenset(str(path[0]) for path in invalid if path))


def _add_hint(problem: Problem, overrides: Callable[[], Collection[str]]) -> Problem:
    """If an unknown key is a variable of image-builder or an override, add a hint with the right key."""
    if not problem.message.startswith("unknown key"):
        return problem
    section, _, name = problem.path.rpartition(".")
    # In a section, a word such as `password` means a key of the section, and not a variable that has no key here.
    hint = hint_for(name, only_keys=bool(section))
    if hint is None and name.endswith("_url") and name in overrides():
        hint = f"write it below overrides: overrides.{name}"
    return dataclasses.replace(problem, hint=hint) if hint else problem


def _remove(value: object, paths: Collection[YamlPath], at: YamlPath) -> object:
    """A value without its keys at some paths."""
    if not isinstance(value, dict):
        return value
    return {key: _remove(inner, paths, (*at, key)) for key, inner in value.items() if (*at, key) not in paths}


def _unknown_names(document: Document, path: YamlPath, what: str, names: Names) -> Iterator[Problem]:
    named = [at[-1] for at in document.lines if at[:-1] == path]
    known = names(document) if named else ()
    for name in named:
        # The model rejects a list, whose items have numbers.
        if isinstance(name, str) and name not in known:
            yield document.problem((*path, name), f"unknown {what} {quoted(name)}", nearest(name, sorted(known)))
