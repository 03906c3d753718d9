"""Reads YAML as plain data with the place of every value. Rejects what no config needs: anchors, tags, directives,
duplicate keys, deep nesting, huge files. Touches only the given file."""

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import ruamel.yaml
import ruamel.yaml.error
from ruamel.yaml import events
from ruamel.yaml.cyaml import CBaseLoader

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.files import read_file

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 20
# Keys, items and strings of one document: far more than any config has, and still read in a fraction of a second.
MAX_VALUES: Final = 20_000
# YAML's own limit for a simple key.
_LONGEST_KEY: Final = 1024
# Python cannot print an integer of several thousand digits.
_LONGEST_NUMBER: Final = 100
# The parser written in Python takes up to a third of a second for this size.
_SLOW_PARSER_LIMIT: Final = 32 * 1024
_ESCAPE_HINT: Final = r"a backslash in double quotes begins an escape: use single quotes, as in 'C:\bin'"

_YAML_TAG_PREFIX: Final = "tag:yaml.org,2002:"

# Characters that editors do not show, line ends of some programs only, and code points that are no characters.
_INVISIBLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")

# Scalars without quotes that are no strings: https://yaml.org/spec/1.2.2/#103-core-schema, and the dates of YAML 1.1.
_PLAIN: Final = re.compile(
    r"""(?P<null> | ~ | null | Null | NULL)
      | (?P<bool> true | True | TRUE | false | False | FALSE)
      | (?P<int> [-+]? (?: 0b[01_]+ | 0o[0-7_]+ | 0x[0-9a-fA-F_]+ | [0-9][0-9_]* ))
      | (?P<float> [-+]? (?: [0-9][0-9_]*\.[0-9_]* | \.[0-9][0-9_]* ) (?: [eE][-+]?[0-9]+ )?
                 | [-+]? [0-9][0-9_]* [eE][-+]?[0-9]+
                 | [-+]? \.(?: inf | Inf | INF | nan | NaN | NAN ))
      | (?P<date> [0-9]{4}-[0-9]{2}-[0-9]{2}
                | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2} (?: [Tt] | [ \t]+ ) [0-9]{1,2}:[0-9]{2}:[0-9]{2}
                  (?: \.[0-9]* )? (?: [ \t]* (?: Z | [-+][0-9]{1,2}(?: :[0-9]{2} )? ))? )""",
    re.VERBOSE,
)

_WORD: Final = re.compile(r"[^\s.\[\]=\"']+")

YamlPath = tuple[str | int, ...]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value was written: a line of a file, or an option of the command line (line 0)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclasses.dataclass(frozen=True)
class Document:
    """YAML as data, with the line of each value.

    `lines` has every path. The line is one of `file`, unless `elsewhere` has another place for the path.
    `sets` are the values of --set.
    """

    file: str
    data: Any
    lines: dict[YamlPath, int]
    elsewhere: Mapping[YamlPath, Place] = dataclasses.field(default_factory=dict)
    sets: tuple[tuple[str, object], ...] = ()

    def place(self, path: YamlPath) -> Place:
        """The place of a value, or of the nearest section around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.elsewhere.get(path) or Place(self.file, self.lines.get(path, 1))

    def problem(self, path: YamlPath, message: str, hint: str = "") -> Problem:
        place = self.place(path)
        return Problem(place.file, place.line, dotted(path), message, hint)


def dotted(path: YamlPath) -> str:
    """A path as text: `targets.prod.publish.regions[0]`, `mirrors["docker.io"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _WORD.fullmatch(part):
            text += f".{part}" if text else part
        else:
            quoted = part.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{quoted}"]'
    return text


def read_yaml(path: Path, shown_as: str | None = None) -> Document:
    """The file as a document. Any error while reading it is a ConfigError with its place."""
    file = shown_as or str(path)
    try:
        raw = read_file(path, limit=MAX_BYTES, shown_as=file)
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist", hint="give the path of a config, such as one in configs/") from None
    return parse_yaml(raw, file)


def parse_yaml(raw: bytes, file: str) -> Document:
    """Bytes as a document."""
    text = plain_text(raw, file)
    try:
        return _parse(text, file)
    except ruamel.yaml.error.MarkedYAMLError as error:
        raise _syntax_error(file, error, text) from None
    except (ruamel.yaml.error.YAMLError, ValueError, OverflowError):
        # The parsers raise these without a place, for an escape beyond Unicode or a %YAML with thousands of digits.
        raise ConfigError(
            f"{file} is not valid YAML", hint=r"look for an invalid \U escape in double quotes, and for a line with %"
        ) from None


def plain_text(raw: bytes, file: str) -> str:
    """Bytes as a text of limited size without invisible characters."""
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{file} is too large: it has {len(raw)} bytes", hint=f"write at most {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        problem = Problem(file, line, "", f"byte 0x{raw[error.start]:02x} is not UTF-8", "save the file as UTF-8")
        raise ConfigError(f"{file} is not a text file", problems=[problem]) from None
    if found := _INVISIBLE.search(text):
        problem = Problem(file, text.count("\n", 0, found.start()) + 1, "", _invisible_message(found), "remove it")
        raise ConfigError(f"{file} is not a text file", problems=[problem])
    return text


def _invisible_message(found: re.Match[str]) -> str:
    return f"the character U+{ord(found[0]):04X} is not allowed"


def _parse(text: str, file: str) -> Document:
    # The parser in C is five times as fast, but rejects a colon inside a plain word in brackets: `[https://…]` is YAML.
    # So the slow parser judges what it rejects. Its messages are better too.
    try:
        return _document(text, file, pure=False)
    except ruamel.yaml.error.MarkedYAMLError:
        if len(text) > _SLOW_PARSER_LIMIT:
            raise
        return _document(text, file, pure=True)


def _document(text: str, file: str, *, pure: bool) -> Document:
    # The parser in C is used directly: ruamel.yaml.YAML looks for plug-ins and makes classes for each document.
    parsed = ruamel.yaml.YAML(typ="safe", pure=True).parse(text) if pure else iter(CBaseLoader(text).get_event, None)
    reading = _Reading(file, _check(parsed, file), {}, [])
    data: object = {}
    for event in reading.parsed:
        if isinstance(event, events.NodeEvent):
            data = _value(event, (), reading)
    if reading.problems:
        raise ConfigError(f"{file} cannot be used", problems=reading.problems)
    return Document(file, data, reading.lines)


def _check(parsed: Iterable[events.Event], file: str) -> Iterator[events.Event]:
    """The events of a text that is one plain document of limited size. Any other text is an error."""
    depth = values = documents = 0
    for event in parsed:
        is_unusual: object = False
        if isinstance(event, events.NodeEvent):
            values += 1
            depth += isinstance(event, events.CollectionStartEvent)
            is_unusual = event.anchor or getattr(event, "tag", None)
        elif isinstance(event, events.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, events.DocumentStartEvent):
            documents += 1
            is_unusual = documents > 1 or event.version or event.tags
        if is_unusual:
            message, hint = _unusual(event)
            problem = Problem(file, event.start_mark.line + 1, "", message, hint)
            raise ConfigError(f"{file} cannot be used", problems=[problem])
        if depth > MAX_DEPTH:
            raise ConfigError(f"{file} has more than {MAX_DEPTH} levels", hint="remove levels: no config has so many")
        if values > MAX_VALUES:
            raise ConfigError(f"{file} has more than {MAX_VALUES} keys and values", hint="write a smaller file")
        yield event


def _unusual(event: events.Event) -> tuple[str, str]:
    """What is not allowed in an event, and what to do about it."""
    if getattr(event, "anchor", None):
        return "anchors and aliases are not allowed", "write the value itself"
    if tag := getattr(event, "tag", None):
        return "tags are not allowed", f"remove {short(str(tag).replace(_YAML_TAG_PREFIX, '!!'))}"
    if getattr(event, "version", None) or getattr(event, "tags", None):
        return "directives are not allowed", "remove the lines that begin with %"
    return "a second document begins here", "write one document in a file"


def short(text: str, longest: int = 60) -> str:
    """A text as messages show it, cut if it is long."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def hint_for_syntax(message: str) -> str | None:
    """What to do about an error of YAML that people make with paths of Windows."""
    if "escape" not in message:
        return None
    return "write the text in 'single quotes': in double quotes, a backslash begins an escape"


def _syntax_error(file: str, error: ruamel.yaml.error.MarkedYAMLError, text: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    message = str(error.problem or "cannot be read")
    if error.context and error.context_mark:
        message = f"{error.context} from line {error.context_mark.line + 1}, {message}"
    hint = hint_for_syntax(message) or "check the indentation and quotes on this line and above"
    if any(row.lstrip(" ").startswith("\t") for row in text.splitlines()[line - 1 : line]):
        hint = "indent with spaces: YAML allows no tabs there"
    return ConfigError(f"{file} is not valid YAML", problems=[Problem(file, line, "", message, hint)])


@dataclasses.dataclass(frozen=True)
class _Reading:
    """The events of a document that are not read yet, and the lines and problems found so far."""

    file: str
    parsed: Iterator[events.Event]
    lines: dict[YamlPath, int]
    problems: list[Problem]

    def inner(self) -> Iterator[events.Event]:
        """The first event of each value up to the end of the current list or map."""
        return itertools.takewhile(lambda event: not isinstance(event, events.CollectionEndEvent), self.parsed)

    def add_problem(self, event: events.Event, path: YamlPath, message: str, hint: str) -> None:
        self.problems.append(Problem(self.file, event.start_mark.line + 1, dotted(path), message, hint))


def _value(event: events.Event, path: YamlPath, reading: _Reading) -> object:
    """The value that begins with this event."""
    reading.lines.setdefault(path, event.start_mark.line + 1)
    if isinstance(event, events.ScalarEvent):
        try:
            return _characters(event) if event.style else _plain(event.value)
        except ValueError as error:
            reading.add_problem(event, path, *error.args)
            return None
    if isinstance(event, events.SequenceStartEvent):
        return [_value(item, (*path, index), reading) for index, item in enumerate(reading.inner())]
    result: dict[str, object] = {}
    for name in reading.inner():
        at = path
        try:
            key = _key(name)
            at = (*path, key)
            if key in result:
                raise ValueError("duplicate key", "keep one of them")
        except ValueError as error:
            reading.add_problem(name, at, *error.args)
            # A rejected key and its value are read, but not judged.
            skipped = dataclasses.replace(reading, lines={}, problems=[])
            _value(name, at, skipped)
            _value(next(reading.parsed), at, skipped)
        else:
            reading.lines[at] = name.start_mark.line + 1
            result[key] = _value(next(reading.parsed), at, reading)
    return result


def _key(event: events.Event) -> str:
    if not isinstance(event, events.ScalarEvent) or len(event.value) > _LONGEST_KEY:
        raise ValueError("a key must be a string", "")
    if not event.style and event.value == "<<":
        raise ValueError("merge keys are not allowed", "write the keys themselves")
    return _characters(event)


def _characters(event: events.ScalarEvent) -> str:
    r"""The text of a scalar. JSON writes a character beyond U+FFFF as two surrogates, `"\ud83d\ude00"`."""
    text: str = event.value
    # Only an escape in double quotes can hold characters that are not allowed in the file.
    if event.style == '"' and (found := _INVISIBLE.search(text)):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if found := _INVISIBLE.search(text):
            raise ValueError(_invisible_message(found), _ESCAPE_HINT)
    return text


def _plain(text: str) -> object:
    """A scalar without quotes."""
    match = _PLAIN.fullmatch(text)
    if match is None:
        return text
    kind, number = match.lastgroup, text.replace("_", "")
    with contextlib.suppress(ValueError):
        if kind == "int" and len(text) <= _LONGEST_NUMBER:
            return int(number, 0)
        if kind == "float" and not math.isinf(float(number)):
            return Unquoted(float(number), text)
    if kind in ("int", "float"):
        raise ValueError(f"{short(text)!r} is not a valid number", "put it in quotes")
    if kind == "date":
        return Unquoted(math.nan, text)
    return None if kind == "null" else text.lower() == "true"


class Unquoted(float):
    """A decimal number or a date without quotes. Keeps its spelling for messages."""

    text: str

    def __new__(cls, value: float, text: str) -> Self:
        number = super().__new__(cls, value)
        number.text = text
        return number
