"""YAML in, plain data and the place of every value out. Refuses what a config never needs: anchors, tags, directives,
duplicate keys, deep nesting, huge files. Touches nothing but the file it is given."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any, Final

import ruamel.yaml
import ruamel.yaml.error
import ruamel.yaml.events
import ruamel.yaml.nodes

from imagegen.errors import ConfigError, Problem
from imagegen.files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    Node = ruamel.yaml.nodes.MappingNode | ruamel.yaml.nodes.SequenceNode | ruamel.yaml.nodes.ScalarNode

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 20
# Keys, items and texts of one document: far above any config, and read in a fraction of a second.
MAX_VALUES: Final = 20_000
# A key that stands plainly on its line has this bound in YAML itself.
_LONGEST_KEY: Final = 1024
# Python writes no whole number of more than some thousand digits, so one could be read and never shown.
_LONGEST_NUMBER: Final = 100
# The parser in Python needs up to a third of a second for this much.
_MOST_FOR_THE_SLOW_PARSER: Final = 32 * 1024
_LONGEST_QUOTE: Final = 60
_ESCAPE_HINT: Final = r"a backslash in double quotes begins an escape: use single quotes, as in 'C:\bin'"

_YAMLS_OWN: Final = "tag:yaml.org,2002:"

# What no editor shows, what ends a line for some readers only, and what is no character at all.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")

# A word without quotes that is no text: https://yaml.org/spec/1.2.2/#103-core-schema, and what YAML 1.1 took for dates.
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
    """Where a value was written: a line of a file, or what was said on the command line (line 0)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclasses.dataclass(frozen=True)
class Document:
    """YAML as data, and where each value stands.

    `lines` has every path; it is a line of `file`, unless `elsewhere` names another place for that path.
    `sets` are the values that were said on the command line.
    """

    file: str
    data: Any
    lines: dict[YamlPath, int]
    elsewhere: Mapping[YamlPath, Place] = dataclasses.field(default_factory=dict)
    sets: tuple[tuple[str, object], ...] = ()

    def place(self, path: YamlPath) -> Place:
        """The place of a value, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.elsewhere.get(path) or Place(self.file, self.lines.get(path, 1))

    def line(self, path: YamlPath) -> int:
        """The line of that place."""
        return self.place(path).line

    def problem(self, path: YamlPath, message: str, hint: str = "") -> Problem:
        place = self.place(path)
        return Problem(place.file, place.line, dotted(path), message, hint)


def dotted(path: YamlPath) -> str:
    """A path as people write it: `targets.prod.publish.regions[0]`, `mirrors["docker.io"]`."""
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
    """The file as a document; every way in which it cannot be read is a ConfigError with its place."""
    file = shown_as or str(path)
    try:
        raw = read_file(path, limit=MAX_BYTES, shown_as=file)
    except FileNotFoundError:
        raise ConfigError(
            f"{file} does not exist", hint="give the path of a config, for example one of configs/"
        ) from None
    return parse_yaml(raw, file)


def parse_yaml(raw: bytes, file: str) -> Document:
    """Bytes as a document."""
    text = plain_text(raw, file)
    try:
        return _parsed(text, file)
    except ruamel.yaml.error.MarkedYAMLError as error:
        raise _syntax_error(file, error, text) from None
    except (ruamel.yaml.error.YAMLError, ValueError, OverflowError):
        # What the parsers raise without a place: an escape beyond the last character, a %YAML of thousands of digits.
        raise ConfigError(
            f"{file} is not YAML", hint=r"look for a \U in double quotes that is no character, and for a line with %"
        ) from None


def plain_text(raw: bytes, file: str) -> str:
    """Bytes as a text of a bearable size, in which every character can be seen."""
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{file} is too long", hint=f"a file here has at most {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        problem = Problem(file, line, "", f"byte 0x{raw[error.start]:02x} is not UTF-8", "save the file as UTF-8 text")
        raise ConfigError(f"{file} is not text", problems=[problem]) from None
    if unseen := _UNSEEN.search(text):
        line = text.count("\n", 0, unseen.start()) + 1
        problem = Problem(file, line, "", _holds(unseen), "remove it")
        raise ConfigError(f"{file} is not text", problems=[problem])
    return text


def _holds(unseen: re.Match[str]) -> str:
    return f"the character U+{ord(unseen[0]):04X} is not used here"


def _parsed(text: str, file: str) -> Document:
    # The parser in C is five times as fast, and refuses a colon inside a plain word in brackets: `[https://…]` is YAML.
    # What it refuses is judged by the slow one, whose words are the better ones too.
    try:
        return _document(text, file, pure=False)
    except ruamel.yaml.error.MarkedYAMLError:
        if len(text) > _MOST_FOR_THE_SLOW_PARSER:
            raise
        return _document(text, file, pure=True)


def _document(text: str, file: str, *, pure: bool) -> Document:
    # Judged before any node is made: nodes forget anchors, tags and directives, and making them has no bounds.
    _check(ruamel.yaml.YAML(typ="safe", pure=pure).parse(text), file)
    root = ruamel.yaml.YAML(typ="safe", pure=pure).compose(text)
    reading = _Reading(file, {}, [])
    data = {} if root is None else _value(root, (), reading)
    if reading.problems:
        raise ConfigError(f"{file} cannot be used", problems=reading.problems)
    return Document(file, data, reading.lines)


def _check(events: Iterable[ruamel.yaml.events.Event], file: str) -> None:
    """One plain document of a bearable size."""
    depth = values = documents = 0
    for event in events:
        if isinstance(event, ruamel.yaml.events.AliasEvent) or getattr(event, "anchor", None):
            raise _refused(file, event, "anchors and aliases are not used here", "write the value out")
        if tag := getattr(event, "tag", None):
            raise _refused(file, event, "tags are not used here", f"write it without {_short_tag(tag)}")
        if isinstance(event, ruamel.yaml.events.DocumentStartEvent):
            documents += 1
            if event.version or event.tags:
                raise _refused(file, event, "directives are not used here", "remove the lines that begin with %")
            if documents > 1:
                raise _refused(file, event, "a second document begins here", "keep one document in a file")
        values += isinstance(event, ruamel.yaml.events.NodeEvent)
        depth += isinstance(event, ruamel.yaml.events.CollectionStartEvent)
        depth -= isinstance(event, ruamel.yaml.events.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ConfigError(f"{file} is nested more than {MAX_DEPTH} deep", hint="nothing here is as deep")
        if values > MAX_VALUES:
            raise ConfigError(f"{file} has more than {MAX_VALUES} keys and values", hint="write a smaller file")


def _refused(file: str, event: ruamel.yaml.events.Event, message: str, hint: str) -> ConfigError:
    problem = Problem(file, event.start_mark.line + 1, "", message, hint)
    return ConfigError(f"{file} cannot be used", problems=[problem])


def short(text: str) -> str:
    """So much of a text as a message shows of it."""
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


def _short_tag(tag: str) -> str:
    return short(f"!!{tag.removeprefix(_YAMLS_OWN)}" if tag.startswith(_YAMLS_OWN) else tag)


def _syntax_error(file: str, error: ruamel.yaml.error.MarkedYAMLError, text: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    problem = str(error.problem or "cannot be read")
    within = (
        f"{error.context} from line {error.context_mark.line + 1}, " if error.context and error.context_mark else ""
    )
    hint = "check the indentation and quotes on this line and above"
    if any(row.lstrip(" ").startswith("\t") for row in text.splitlines()[line - 1 : line]):
        hint = "indent with spaces: YAML takes no tab there"
    return ConfigError(f"{file} is not YAML", problems=[Problem(file, line, "", f"{within}{problem}", hint)])


@dataclasses.dataclass(frozen=True)
class _Reading:
    """What one pass over the nodes of a document has found so far."""

    file: str
    lines: dict[YamlPath, int]
    problems: list[Problem]

    def refuse(self, node: Node, path: YamlPath, message: str, hint: str) -> None:
        self.problems.append(Problem(self.file, node.start_mark.line + 1, dotted(path), message, hint))


def _value(node: Node, path: YamlPath, reading: _Reading) -> object:
    reading.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, ruamel.yaml.nodes.MappingNode):
        return _mapping(node, path, reading)
    if isinstance(node, ruamel.yaml.nodes.SequenceNode):
        return [_value(item, (*path, index), reading) for index, item in enumerate(node.value)]
    try:
        return _characters(node) if node.style else _plain(node.value)
    except ValueError as error:
        reading.refuse(node, path, *error.args)
        return None


def _mapping(node: ruamel.yaml.nodes.MappingNode, path: YamlPath, reading: _Reading) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in node.value:
        try:
            key = _key(name)
        except ValueError as error:
            reading.refuse(name, path, *error.args)
            continue
        if key in result:
            reading.refuse(name, (*path, key), "this key is here twice", "keep one of them")
            continue
        reading.lines[*path, key] = name.start_mark.line + 1
        result[key] = _value(value, (*path, key), reading)
    return result


def _key(node: Node) -> str:
    if not isinstance(node, ruamel.yaml.nodes.ScalarNode) or len(node.value) > _LONGEST_KEY:
        raise ValueError("a key must be a word", "")
    if not node.style and node.value == "<<":
        raise ValueError("merge keys are not used here", "write the keys out")
    return _characters(node)


def _characters(node: ruamel.yaml.nodes.ScalarNode) -> str:
    r"""The text of a scalar; JSON writes a character beyond U+FFFF as two halves, `"\ud83d\ude00"`."""
    text: str = node.value
    # Only an escape in double quotes can hold what the file as a whole may not.
    if node.style == '"' and (unseen := _UNSEEN.search(text)):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if unseen := _UNSEEN.search(text):
            raise ValueError(_holds(unseen), _ESCAPE_HINT)
    return text


def _plain(text: str) -> object:
    """A scalar without quotes."""
    match = _PLAIN.fullmatch(text)
    try:
        match match.lastgroup if match else "str":
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return _whole(text)
            case "float":
                return Unquoted(_finite(text), text)
            case "date":
                return Unquoted(math.nan, text)
            case _:
                return text
    except ValueError:
        raise ValueError(f"{short(text)!r} is not a plain number", "put it in quotes") from None


def _whole(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(text)
    return int(text.replace("_", ""), 0)


def _finite(text: str) -> float:
    number = float(text.replace("_", ""))
    if math.isinf(number):
        raise ValueError(text)
    return number


class Unquoted(float):
    """A number with a point that stands without quotes; keeps its spelling so that a message can show it."""

    text: str

    def __new__(cls, value: float, text: str) -> Unquoted:
        number = super().__new__(cls, value)
        number.text = text
        return number
