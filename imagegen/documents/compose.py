"""A config file and `--set` values in, one document out, with the place of every value: `extends:` is followed here.

Reads the files that a config extends, all of them in its repository."""

from __future__ import annotations

import dataclasses
import os.path
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imagegen.documents.yaml import (
    MAX_DEPTH,
    MAX_VALUES,
    Document,
    Place,
    dotted,
    parse_yaml,
    plain_text,
    read_yaml,
    short,
)
from imagegen.errors import ConfigError, Problem
from imagegen.files import check_name
from imagegen.lines import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imagegen.documents.yaml import YamlPath

EXTENDS: Final = "extends"
MAX_LEVELS: Final = 8
MAX_FILES: Final = 32

_WORD: Final = r"""(?P<word>[^\s.\[\]="']+)"""
_BRACKETS: Final = r"""\[(?P<index>[0-9]{1,6})\]|\["(?P<quoted>(?:[^"\\]|\\.)*)"\]"""
# Compiled where a path is read: most runs read none.
_FIRST: Final = rf"(?s){_WORD}|{_BRACKETS}"
_NEXT: Final = rf"(?s)\.{_WORD}|{_BRACKETS}"

_NOTHING: Final = ("null", "~")

_PATH_HINT: Final = 'write it as in targets.prod.publish.regions[0], and a key with a point as in tags["a.b"]'
_VALUE_HINT: Final = 'the value is one line of YAML: 5, true, null, [a, b], {a: 1}, "a text"'


def compose(path: Path, sets: Sequence[str] = (), *, is_text: Callable[[YamlPath], bool]) -> Document:
    """The config at `path`, laid over what it extends, with the values of `--set` over all.

    Keys and values merge key by key; null takes away what stands below it; anything else replaces it. Each file counts
    once, before everything that extends it. `is_text` tells where the model wants a text: there a value of `--set`
    needs no quotes."""
    check_name(path)
    own = read_yaml(path)
    # A document that is no config is for the reader of configs to refuse.
    if not isinstance(own.data, dict) or not (sets or EXTENDS in own.data):
        return own
    data: dict[str, object] = {}
    places: dict[YamlPath, Place] = {(): Place(own.file, 1)}
    for layer in _layers(own):
        above = {key: value for key, value in layer.data.items() if key != EXTENDS}
        # A section that only gets more keys stays where it was said: what is wrong with the rest is to be mended there.
        kept = {at: places[at] for at in _extended_sections(data, above, ())}
        data = _laid_over(data, above)
        places |= {at: Place(layer.file, line) for at, line in layer.lines.items()} | kept
    data, said = _with_sets(data, places, sets, is_text)
    # What a later layer replaced has left its place behind; a path that is there was placed by the last that wrote it.
    places = {at: places[at] for at in _paths(data, ())}
    return Document(
        own.file,
        data,
        {at: place.line for at, place in places.items()},
        {at: place for at, place in places.items() if place.file != own.file},
        tuple((dotted(at), value) for at, value in said.items()),
    )


def _laid_over(below: dict[str, object], above: dict[str, object]) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        have = merged.get(key)
        merged[key] = _laid_over(have, value) if isinstance(have, dict) and isinstance(value, dict) else value
    return {key: value for key, value in merged.items() if value is not None or key not in above}


def _extended_sections(below: object, above: object, at: YamlPath) -> list[YamlPath]:
    """The sections of a document in which the one above changes nothing; of the others, those within that it leaves."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return []
    found = [
        path for key in below.keys() & above.keys() for path in _extended_sections(below[key], above[key], (*at, key))
    ]
    unchanged = all((*at, key) in found for key in below.keys() & above.keys())
    return [at, *found] if unchanged else found


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
    """What has been read for one config; `layers` are in the order in which they are merged."""

    repository: Path
    read: dict[Path, Document]
    layers: list[Document]
    problems: list[Problem]


def _layers(own: Document) -> list[Document]:
    """The documents that make up a config, itself last."""
    file = Path(own.file)
    reading = _Reading(_repository(_real(file.parent)), {_real(file): own}, [], [])
    _follow(own, {_real(file): own.file}, reading)
    if reading.problems:
        # A file that cannot be read is tried again by the next that extends it.
        raise ConfigError(f"{own.file} cannot be composed", problems=set(reading.problems))
    return reading.layers


def _follow(document: Document, chain: dict[Path, str], reading: _Reading) -> None:
    """Adds what a document extends to the layers, and then itself; `chain` are the files that led here."""
    for at, text in _extended(document, reading):
        path = _beside(document.file, text)
        real = _real(path)
        if wrong := _wrong_with(text, path, chain, reading):
            reading.problems.append(document.problem(at, *wrong))
        elif real not in reading.read:
            try:
                reading.read[real] = read_yaml(path)
            except ConfigError as error:
                reading.problems.extend(error.problems or [document.problem(at, error.message, error.hint)])
            else:
                _follow(reading.read[real], chain | {real: str(path)}, reading)
    reading.layers.append(document)


def _extended(document: Document, reading: _Reading) -> Iterator[tuple[YamlPath, str]]:
    """The paths under `extends` and where each stands."""
    if not isinstance(document.data, dict):
        reading.problems.append(document.problem((), "must be keys and values"))
        return
    asked = document.data.get(EXTENDS, [])
    entries = enumerate(asked) if isinstance(asked, list) else [(None, asked)]
    for index, text in entries:
        at: YamlPath = (EXTENDS,) if index is None else (EXTENDS, index)
        if isinstance(text, str) and text:
            yield at, text
        else:
            reading.problems.append(document.problem(at, "must be a path or a list of paths", "for example base.yaml"))


def _wrong_with(text: str, path: Path, chain: dict[Path, str], reading: _Reading) -> tuple[str, str] | None:
    """Why a path cannot be extended, and what to do."""
    real = _real(path)
    if Path(text).is_absolute():
        return f"{text} is an absolute path", "write it relative to the folder of this file"
    if not real.is_relative_to(reading.repository):
        return f"{text} leaves {reading.repository}", "a config extends what lies in its own repository"
    if real in chain:
        files = list(chain)
        circle = [chain[file] for file in files[files.index(real) :]]
        return f"extends itself: {' -> '.join([*circle, circle[0]])}", "remove one of these"
    if not os.path.isfile(real):  # noqa: PTH113 - Path.is_file raises where a name is too long to be one
        return f"there is no file {path}", "the path is relative to the folder of this file"
    if len(chain) > MAX_LEVELS:
        return f"more than {MAX_LEVELS} levels of files extend each other", "extend fewer levels"
    if real not in reading.read and len(reading.read) >= MAX_FILES:
        return f"more than {MAX_FILES} files make up one config", "join some of them"
    if sum(len(document.lines) for document in reading.read.values()) > MAX_VALUES:
        return f"the files that make up one config have more than {MAX_VALUES} values", "extend less"
    return None


def _beside(file: str, text: str) -> Path:
    """A path beside a file, without `..` where that is the same file."""
    path = Path(file).parent / text
    short = Path(os.path.normpath(path))
    return short if _real(short) == _real(path) else path


def _real(path: Path) -> Path:
    # Path.resolve raises for links in a circle before Python 3.13.
    return Path(os.path.realpath(path))


def _repository(folder: Path) -> Path:
    # A work tree has a file .git, a clone has a folder.
    return next((at for at in (folder, *folder.parents) if os.path.lexists(at / ".git")), folder)


def parse_path(text: str) -> YamlPath:
    """What `dotted` wrote, or people, as a path; anything else is a ConfigError."""
    path, rest = _leading_path(text)
    if rest or not path:
        raise ConfigError(f"{short(text)!r} is not a path into a config", hint=_PATH_HINT)
    return path


def _leading_path(text: str) -> tuple[YamlPath, str]:
    path: YamlPath = ()
    while match := re.match(_NEXT if path else _FIRST, text):
        word, index, quoted = match.group("word", "index", "quoted")
        part = int(index) if index else word or re.sub(r"(?s)\\(.)", r"\1", quoted)
        path, text = (*path, part), text[match.end() :]
    return path, text


def _with_sets(
    data: dict[str, object], places: dict[YamlPath, Place], sets: Sequence[str], is_text: Callable[[YamlPath], bool]
) -> tuple[dict[str, object], dict[YamlPath, object]]:
    """The data with every value of `--set`, and those that no later one replaced; `places` learns where they stand."""
    problems: list[Problem] = []
    said: dict[YamlPath, object] = {}
    for text in sets:
        where = "--set"
        try:
            # Bytes that a shell passed and that are no UTF-8 are lone halves here; as bytes again they are refused.
            said_so = plain_text(text.encode("utf-8", "surrogatepass"), where)
            where = f"--set {short(said_so.partition('=')[0])}"
            path, raw = _split(said_so)
            where = f"--set {dotted(path)}"
            value = _value(raw, where, wants_text=is_text(path))
            changed = _put(data, path, value, ())
        except ConfigError as error:
            problems.append(_told(error, where))
            continue
        made = [path[:end] for end in range(1, len(path)) if _at(data, path[:end]) is None]
        places |= dict.fromkeys([*made, *_paths(value, path)], Place(where, 0))
        said = {at: old for at, old in said.items() if at[: len(path)] != path} | {path: value}
        data = changed
    if problems:
        raise ConfigError("what --set says cannot be used", problems=problems)
    return data, said


def _split(text: str) -> tuple[YamlPath, str]:
    """`path=value` in its two parts."""
    path, rest = _leading_path(text)
    if "=" not in text:
        raise ConfigError("has no value", hint="write --set path=value")
    if not rest.startswith("=") or not path:
        raise ConfigError("is not a path into a config", hint=_PATH_HINT)
    if len(path) > MAX_DEPTH:
        raise ConfigError(f"is more than {MAX_DEPTH} deep", hint=_PATH_HINT)
    if path[0] == EXTENDS:
        raise ConfigError("is said in a file only", hint="write a small config that extends what is wanted")
    return path, rest.removeprefix("=")


def _value(raw: str, where: str, *, wants_text: bool) -> object:
    quoted = len(raw) > 1 and raw[0] in "'\"" and raw[0] == raw[-1]
    if wants_text and not quoted and raw not in _NOTHING:
        return raw
    document = parse_yaml(raw.encode(), where)
    if document.lines and isinstance(document.data, (dict, list)) and not raw.lstrip().startswith(("{", "[")):
        raise ConfigError("a list or keys and values need brackets here", hint=_VALUE_HINT)
    # Nothing at all is null, as it is behind a key.
    return document.data if document.lines else None


def _told(error: ConfigError, where: str) -> Problem:
    """A complaint about one `--set`; it has no line to point to, so all that is wrong with it is said at once."""
    message = error.message.removeprefix(where).strip()
    reasons = "; ".join(problem.message for problem in error.problems)
    return Problem(where, 0, "", f"{message}: {reasons}" if reasons else message, error.hint or _VALUE_HINT)


def _at(value: Any, path: YamlPath) -> object:  # noqa: ANN401 - any part of a document
    for part in path:
        value = None if value is None else value.get(part) if isinstance(part, str) else value[part]
    return value


def _put(value: object, path: YamlPath, new: object, at: YamlPath) -> Any:  # noqa: ANN401 - of the type that the value is
    """A document with another value at a path; only what is on the way there is made anew."""
    if not path:
        return new
    part, rest = path[0], path[1:]
    if isinstance(part, int):
        if not isinstance(value, list):
            raise ConfigError(f"{dotted(at) or 'the config'} is not a list", hint="set the whole of it: path=[a, b]")
        if part >= len(value):
            raise ConfigError(
                f"{dotted(at)} has {counted(len(value), 'item')}, counted from 0", hint="set the whole list"
            )
        return [*value[:part], _put(value[part], rest, new, (*at, part)), *value[part + 1 :]]
    inside = {} if value is None else value
    if not isinstance(inside, dict):
        raise ConfigError(f"{dotted(at)} has no keys, so none can be set in it", hint=f"set {dotted(at)} itself")
    if new is None and not rest:
        return {key: other for key, other in inside.items() if key != part}
    return inside | {part: _put(inside.get(part), rest, new, (*at, part))}
