"""Reads a config: composes it of the files that it extends, itself and the values of `--set`, with the place of every
value. Reports every problem at once, with the nearest known name. All these files are in the config's repository."""

import dataclasses
import functools
import os.path
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pydantic

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.files import check_name
from imagegen.base.lines import counted
from imagegen.catalog.facts import hint_for
from imagegen.config.fields import is_string
from imagegen.config.model import ImageConfig
from imagegen.config.problems import model_problems, nearest, place_of, quoted
from imagegen.config.yaml import (
    MAX_DEPTH,
    MAX_VALUES,
    Document,
    Place,
    YamlPath,
    dotted,
    hint_for_syntax,
    parse_yaml,
    plain_text,
    read_yaml,
    short,
)

EXTENDS: Final = "extends"
MAX_LEVELS: Final = 8
MAX_FILES: Final = 32

_WORD: Final = r"""(?P<word>[^\s.\[\]="']+)"""
_BRACKETS: Final = r"""\[(?P<index>[0-9]{1,6})\]|\["(?P<quoted>(?:[^"\\]|\\.)*)"\]"""

_PATH_HINT: Final = 'write a path such as targets.prod.publish.regions[0], or tags["a.b"] for a key with a dot'
_VALUE_HINT: Final = 'write the value as one line of YAML, such as 5, true, null, [a, b], {a: 1} or "a string"'


def compose(path: Path, sets: Sequence[str] = (), *, is_text: Callable[[YamlPath], bool]) -> Document:
    """Merge the files that a config extends, the config at `path`, and the values of `--set`, in this order.

    Maps merge key by key. Null removes the value of an earlier file, and any other value replaces it. Each file is
    merged once, before the files that extend it. `is_text` tells which values must be strings: there a value of `--set`
    needs no quotes."""
    check_name(path)
    own = read_yaml(path)
    # The caller rejects a document that is not a config.
    if not isinstance(own.data, dict) or not (sets or EXTENDS in own.data):
        return own
    data: dict[str, object] = {}
    places: dict[YamlPath, Place] = {(): Place(own.file, 1)}
    for layer in _layers(own):
        above = {key: value for key, value in layer.data.items() if key != EXTENDS}
        # A section that only gets more keys keeps its place: errors in its other keys are corrected there.
        kept = {at: places[at] for at in _extended_sections(data, above, ())}
        data = _merge(data, above)
        places |= {at: Place(layer.file, line) for at, line in layer.lines.items()} | kept
    data, set_values = _apply_sets(data, places, sets, is_text)
    # Drop the places of values that a later layer replaced.
    places = {at: places[at] for at in _paths(data, ())}
    return Document(
        own.file,
        data,
        {at: place.line for at, place in places.items()},
        {at: place for at, place in places.items() if place.file != own.file},
        tuple((dotted(at), value) for at, value in set_values.items()),
    )


def _merge(below: dict[str, object], above: dict[str, object]) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        have = merged.get(key)
        merged[key] = _merge(have, value) if isinstance(have, dict) and isinstance(value, dict) else value
    return {key: value for key, value in merged.items() if value is not None or key not in above}


def _extended_sections(below: object, above: object, at: YamlPath) -> list[YamlPath]:
    """The sections of the document below in which the document above changes no existing key."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return []
    both = below.keys() & above.keys()
    found = [path for key in both for path in _extended_sections(below[key], above[key], (*at, key))]
    return [at, *found] if all((*at, key) in found for key in both) else found


def _paths(value: object, at: YamlPath) -> Iterator[YamlPath]:
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*at, index))


@dataclasses.dataclass(frozen=True)
class _Reading:
    """The files read for one config; `layers` are in the order in which they are merged."""

    repository: Path
    read: dict[Path, Document]
    layers: list[Document]
    problems: list[Problem]


def _layers(own: Document) -> list[Document]:
    """The documents that make up a config. The config itself is the last."""
    file = _real(Path(own.file))
    folder = _real(Path(own.file).parent)
    # In a work tree .git is a file, in a clone a folder.
    repository = next((at for at in (folder, *folder.parents) if os.path.lexists(at / ".git")), folder)
    reading = _Reading(repository, {file: own}, [], [])
    _follow(own, {file: own.file}, reading)
    if reading.problems:
        # As a set: a file that cannot be read is reported again by each file that extends it.
        raise ConfigError(f"{own.file} cannot be composed", problems=set(reading.problems))
    return reading.layers


def _follow(document: Document, chain: dict[Path, str], reading: _Reading) -> None:
    """Add the files that a document extends to the layers, then the document; `chain` are the files that led here."""
    for at, text in _extended(document, reading):
        path = _beside(document.file, text)
        real = _real(path)
        if fault := _find_fault(text, path, chain, reading):
            reading.problems.append(document.problem(at, *fault))
        elif real not in reading.read:
            try:
                reading.read[real] = read_yaml(path)
            except ConfigError as error:
                reading.problems.extend(error.problems or [document.problem(at, error.message, error.hint)])
            else:
                _follow(reading.read[real], chain | {real: str(path)}, reading)
    reading.layers.append(document)


def _extended(document: Document, reading: _Reading) -> Iterator[tuple[YamlPath, str]]:
    """The paths under `extends`, each with its place."""
    if not isinstance(document.data, dict):
        reading.problems.append(document.problem((), "must be a map"))
        return
    extends = document.data.get(EXTENDS, [])
    is_list = isinstance(extends, list)
    for index, text in enumerate(extends if is_list else [extends]):
        at: YamlPath = (EXTENDS, index) if is_list else (EXTENDS,)
        if isinstance(text, str) and text:
            yield at, text
        else:
            reading.problems.append(document.problem(at, "must be a path or a list of paths", "such as base.yaml"))


def _find_fault(text: str, path: Path, chain: dict[Path, str], reading: _Reading) -> tuple[str, str] | None:
    """Why a path cannot be extended, and what to do."""
    real, files = _real(path), list(chain)
    cycle = [chain[file] for file in files[files.index(real) :]] if real in chain else []
    faults = (
        (Path(text).is_absolute(), f"{text} is an absolute path", "write a path relative to the folder of this file"),
        (
            not real.is_relative_to(reading.repository),
            f"{text} is outside {reading.repository}",
            "a config can extend only files of its own repository",
        ),
        (cycle, f"extends itself: {' -> '.join([*cycle, *cycle[:1]])}", "remove one of these"),
        (
            not os.path.isfile(real),  # noqa: PTH113 - Path.is_file raises where a name is too long
            f"the file {path} does not exist",
            "write a path relative to the folder of this file",
        ),
        (len(chain) > MAX_LEVELS, f"more than {MAX_LEVELS} levels of files extend each other", "extend fewer levels"),
        (
            real not in reading.read and len(reading.read) >= MAX_FILES,
            f"more than {MAX_FILES} files make up one config",
            "merge some of them",
        ),
        (
            sum(len(document.lines) for document in reading.read.values()) > MAX_VALUES,
            f"the files that make up one config have more than {MAX_VALUES} values",
            "extend fewer files",
        ),
    )
    return next(((message, hint) for holds, message, hint in faults if holds), None)


def _beside(file: str, text: str) -> Path:
    """A path relative to a file's folder, without `..` where that leads to the same file."""
    path = Path(file).parent / text
    short = Path(os.path.normpath(path))
    return short if _real(short) == _real(path) else path


def _real(path: Path) -> Path:
    # Path.resolve raises for circular links before Python 3.13.
    return Path(os.path.realpath(path))


def leading_path(text: str) -> tuple[YamlPath, str]:
    """The path at the start of a text, as `dotted` or a user writes it, and the rest of the text."""
    path: YamlPath = ()
    dot = ""
    # Compiled only when it is used, because most runs parse no path.
    while match := re.match(rf"(?s)(?:{dot}{_WORD}|{_BRACKETS})", text):
        word, index, quoted = match.group("word", "index", "quoted")
        path = (*path, int(index) if index else word or re.sub(r"(?s)\\(.)", r"\1", quoted))
        text, dot = text[match.end() :], r"\."
    return path, text


def _apply_sets(
    data: dict[str, object], places: dict[YamlPath, Place], sets: Sequence[str], is_text: Callable[[YamlPath], bool]
) -> tuple[dict[str, object], dict[YamlPath, object]]:
    """The data with the values of `--set`, and the values that no later one replaced. Adds to `places`."""
    problems: list[Problem] = []
    set_values: dict[YamlPath, object] = {}
    for text in sets:
        where = "--set"
        try:
            # Python passes bytes of a shell that are not UTF-8 as lone surrogates. As bytes again they are rejected.
            option = plain_text(text.encode("utf-8", "surrogatepass"), where)
            where = f"--set {short(option.partition('=')[0])}"
            path, raw = _split(option)
            where = f"--set {dotted(path)}"
            value = _value(raw, where, wants_text=is_text(path))
            changed = _put(data, path, value, ())
        except ConfigError as error:
            # It has no lines, so one problem holds all that is wrong with it.
            reasons = "; ".join(problem.message for problem in error.problems)
            message = ": ".join(filter(None, [error.message.removeprefix(where).strip(), reasons]))
            problems.append(Problem(where, 0, "", message, error.hint or hint_for_syntax(reasons) or _VALUE_HINT))
        else:
            made = [path[:end] for end in range(1, len(path)) if _at(data, path[:end]) is None]
            places |= dict.fromkeys([*made, *_paths(value, path)], Place(where, 0))
            set_values = {at: old for at, old in set_values.items() if at[: len(path)] != path} | {path: value}
            data = changed
    if problems:
        raise ConfigError("a value of --set cannot be used", problems=problems)
    return data, set_values


def _split(text: str) -> tuple[YamlPath, str]:
    """`path=value` in its two parts."""
    path, rest = leading_path(text)
    faults = (
        ("=" not in text, "has no value", "write --set path=value"),
        (not rest.startswith("=") or not path, "is not a valid path of a value", _PATH_HINT),
        (len(path) > MAX_DEPTH, f"is a path of more than {MAX_DEPTH} keys", _PATH_HINT),
        (path[:1] == (EXTENDS,), "can be set in a file only", "write a small config with this key"),
    )
    for holds, message, hint in faults:
        if holds:
            raise ConfigError(message, hint=hint)
    return path, rest.removeprefix("=")


def _value(raw: str, where: str, *, wants_text: bool) -> object:
    is_quoted = len(raw) > 1 and raw[0] in "'\"" and raw[0] == raw[-1]
    if wants_text and not is_quoted and raw not in ("null", "~"):
        return raw
    document = parse_yaml(raw.encode(), where)
    if document.lines and isinstance(document.data, (dict, list)) and not raw.lstrip().startswith(("{", "[")):
        raise ConfigError("a list or a map needs brackets here", hint=_VALUE_HINT)
    # An empty value is null, as in a file.
    return document.data if document.lines else None


def _at(value: Any, path: YamlPath) -> object:  # noqa: ANN401 - any part of a document
    for part in path:
        value = None if value is None else value.get(part) if isinstance(part, str) else value[part]
    return value


def _put(value: object, path: YamlPath, new: object, at: YamlPath) -> Any:  # noqa: ANN401 - of the type that the value is
    """A document with a new value at a path. It shares the parts outside this path with the old document."""
    if not path:
        return new
    part, rest = path[0], path[1:]
    if isinstance(part, int):
        if not isinstance(value, list):
            raise ConfigError(f"{dotted(at) or 'the config'} is not a list", hint="set the whole value: path=[a, b]")
        if part >= len(value):
            raise ConfigError(
                f"{dotted(at)} has {counted(len(value), 'item')}, counted from 0", hint="set the whole list"
            )
        return [*value[:part], _put(value[part], rest, new, (*at, part)), *value[part + 1 :]]
    inside = {} if value is None else value
    if not isinstance(inside, dict):
        raise ConfigError(f"{dotted(at)} is not a map, so no key can be set in it", hint=f"set {dotted(at)} itself")
    if new is None and not rest:
        return {key: other for key, other in inside.items() if key != part}
    return inside | {part: _put(inside.get(part), rest, new, (*at, part))}


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
