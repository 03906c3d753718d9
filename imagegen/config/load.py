"""Config files and --set values in; an ImageConfig out, or every problem of it at once with its place and the nearest
known name."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import pydantic

from imagegen.catalog.image_builder import hint_for
from imagegen.config.fields import takes_text
from imagegen.config.model import ImageConfig
from imagegen.documents.compose import compose
from imagegen.documents.problems import model_problems, nearest, place_of, quoted
from imagegen.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from imagegen.documents.yaml import Document, YamlPath

    Names = Callable[[Document], Collection[str]]
    """What the steps that a config may use know by name."""


@dataclasses.dataclass(frozen=True)
class Read:
    """A config as far as it can be read. Where values have no right form, `config` is what the rest says, so that rules
    can be asked about it in the same run, and `unread` are the sections of which nothing should be said."""

    document: Document
    config: ImageConfig | None
    problems: tuple[Problem, ...]
    unread: frozenset[str]


def read_config(path: Path, sets: Sequence[str], *, overrides: Names, steps: Names) -> Read:
    """The config of a file; what overrides and steps are called is asked only where the config names some."""
    document = compose(path, sets, is_text=takes_text)
    if not isinstance(document.data, dict):
        problem = document.problem((), "must be a map of keys and values")
        raise ConfigError(f"{document.file} is not a config", problems=[problem])
    if not document.data:
        raise ConfigError(f"{document.file} is empty", hint="run `imagegen init`, or copy one of configs/")
    problems = [
        *_unknown_names(document, ("overrides",), "override", overrides),
        *_unknown_names(document, ("timeouts", "steps"), "step", steps),
    ]
    try:
        return Read(document, ImageConfig.model_validate(document.data), tuple(problems), frozenset())
    except pydantic.ValidationError as error:
        own = functools.partial(overrides, document)
        problems += [_in_our_words(problem, own) for problem in model_problems(error, document, ImageConfig)]
        wrong = [_wrong_part(item, document) for item in error.errors(include_url=False)]
        config = _without(document.data, wrong)
        return Read(document, config, tuple(problems), frozenset(str(path[0]) for path in wrong if path))


def _in_our_words(problem: Problem, overrides: Callable[[], Collection[str]]) -> Problem:
    """A complaint about a key that image-builder or `overrides` know by that name, with the key that is meant."""
    if not problem.message.startswith("unknown key"):
        return problem
    name = problem.path.rpartition(".")[2]
    hint = hint_for(name)
    if hint is None and name.endswith("_url") and name in overrides():
        hint = f"write it below overrides: overrides.{name}"
    return dataclasses.replace(problem, hint=hint) if hint else problem


def _wrong_part(item: ErrorDetails, document: Document) -> YamlPath:
    """The value without which the rest may be a config: the section, where it lacks something."""
    path = place_of(item, document)
    return path[:-1] if item["type"] == "missing" else path


def _without(data: dict[str, object], wrong: Sequence[YamlPath]) -> ImageConfig | None:
    """The config without the values that have no right form, where it is one without them."""
    left = _pruned(data, [path for path in wrong if path], ())
    try:
        return ImageConfig.model_validate(left)
    except pydantic.ValidationError:
        return None


def _pruned(value: object, wrong: Sequence[YamlPath], at: YamlPath) -> object:
    if isinstance(value, dict):
        return {
            key: _pruned(inner, wrong, (*at, key)) for key, inner in value.items() if not _is_wrong((*at, key), wrong)
        }
    return value


def _is_wrong(path: YamlPath, wrong: Sequence[YamlPath]) -> bool:
    # In a list everything moves when one item goes: the list goes.
    return any(at == path or (at[: len(path)] == path and isinstance(at[len(path)], int)) for at in wrong)


def _unknown_names(document: Document, path: YamlPath, what: str, names: Names) -> Iterator[Problem]:
    section = document.data
    for part in path:
        section = section.get(part) if isinstance(section, dict) else None
    if not isinstance(section, dict) or not section:
        return
    known = names(document)
    for name in section:
        if name not in known:
            yield document.problem((*path, name), f"unknown {what} {quoted(name)}", nearest(name, sorted(known)))
