"""YAML in, plain data and the line of every value out. Refuses what a config never needs: anchors, tags, duplicate
keys, deep nesting, huge files. Touches nothing but the file it is given."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import ruamel.yaml
import ruamel.yaml.error
import ruamel.yaml.events
import ruamel.yaml.nodes

from imagegen.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20

_YAMLS_OWN = "tag:yaml.org,2002:"

YamlPath = tuple[str | int, ...]


@dataclasses.dataclass(frozen=True)
class Document:
    """A YAML file as data, and where each value stands."""

    file: str
    data: Any
    lines: dict[YamlPath, int]

    def line(self, path: YamlPath) -> int:
        """The line of a value, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: YamlPath, message: str, hint: str = "") -> Problem:
        return Problem(self.file, self.line(path), dotted(path), message, hint)


def dotted(path: YamlPath) -> str:
    """A path as people write it: `targets.aws.publish.regions[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_yaml(path: Path, shown_as: str | None = None) -> Document:
    """The file as a document; every way in which it cannot be read is a ConfigError with its place."""
    file = shown_as or str(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{file} does not exist", hint="give the path of a config, for example one of configs/"
        ) from None
    except (IsADirectoryError, PermissionError) as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    return parse_yaml(raw, file)


def parse_yaml(raw: bytes, file: str) -> Document:
    """Bytes as a document."""
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{file} has {len(raw)} bytes", hint=f"a file here has at most {MAX_BYTES}")
    try:
        text = raw.decode("utf-8")
        node = _compose(text, file)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        problem = Problem(file, line, "", f"byte 0x{raw[error.start]:02x} is not UTF-8", "save the file as UTF-8 text")
        raise ConfigError(f"{file} is not text", problems=[problem]) from None
    except ruamel.yaml.error.MarkedYAMLError as error:
        raise _syntax_error(file, error, raw.decode("utf-8")) from None
    except ruamel.yaml.error.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    problems: list[Problem] = []
    lines: dict[YamlPath, int] = {}
    data = _value(node, (), file, lines, problems) if node is not None else {}
    if problems:
        raise ConfigError(f"{file} cannot be used", problems=problems)
    return Document(file, data, lines)


def _compose(text: str, file: str) -> ruamel.yaml.nodes.Node | None:
    # The parser in C is five times as fast, and refuses a colon inside a plain word in brackets: `[https://…]` is YAML.
    # What it refuses is judged by the slow one, whose words are the better ones too.
    try:
        return _composed(text, file, pure=False)
    except ruamel.yaml.error.MarkedYAMLError:
        return _composed(text, file, pure=True)


def _composed(text: str, file: str, *, pure: bool) -> ruamel.yaml.nodes.Node | None:
    _check_events(ruamel.yaml.YAML(typ="safe", pure=pure), text, file)
    node: ruamel.yaml.nodes.Node | None = ruamel.yaml.YAML(typ="safe", pure=pure).compose(text)
    return node


def _check_events(loader: ruamel.yaml.YAML, text: str, file: str) -> None:
    """Nesting, aliases and tags, judged before any node is built from them."""
    depth = 0
    for event in loader.parse(text):
        if isinstance(event, ruamel.yaml.events.AliasEvent) or getattr(event, "anchor", None):
            line = event.start_mark.line + 1
            problem = Problem(file, line, "", "anchors and aliases are not used here", "write the value out")
            raise ConfigError(f"{file} cannot be used", problems=[problem])
        if tag := getattr(event, "tag", None):
            problem = Problem(
                file, event.start_mark.line + 1, "", "tags are not used here", f"write it without {_short(tag)}"
            )
            raise ConfigError(f"{file} cannot be used", problems=[problem])
        if isinstance(event, ruamel.yaml.events.CollectionStartEvent):
            depth += 1
        elif isinstance(event, ruamel.yaml.events.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ConfigError(f"{file} is nested more than {MAX_DEPTH} deep")


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_YAMLS_OWN)}" if tag.startswith(_YAMLS_OWN) else tag


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


def _value(
    node: ruamel.yaml.nodes.Node, path: YamlPath, file: str, lines: dict[YamlPath, int], problems: list[Problem]
) -> Any:  # noqa: ANN401 - whatever YAML can hold
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, ruamel.yaml.nodes.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, ruamel.yaml.nodes.ScalarNode) else None
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                problems.append(Problem(file, line, dotted(path), "a key must be a word"))
                continue
            if key in result:
                problems.append(Problem(file, line, dotted((*path, key)), "this key is here twice", "keep one of them"))
                continue
            lines[(*path, key)] = line
            result[key] = _value(value_node, (*path, key), file, lines, problems)
        return result
    if isinstance(node, ruamel.yaml.nodes.SequenceNode):
        return [_value(item, (*path, index), file, lines, problems) for index, item in enumerate(node.value)]
    return _scalar(node, path, file, problems)


def _scalar(node: ruamel.yaml.nodes.Node, path: YamlPath, file: str, problems: list[Problem]) -> Any:  # noqa: ANN401 - as above
    tag = str(node.tag).removeprefix(_YAMLS_OWN)
    text = node.value
    try:
        match tag:
            case "str":
                return text
            case "int":
                return int(text.replace("_", ""), 0)
            case "float":
                return Unquoted(float(text.replace("_", "")), text)
            case "bool":
                return text.lower() == "true"
            case "null":
                return None
            case "timestamp":
                return Unquoted(math.nan, text)
            case _:
                what = f"{text!r} is not a plain value"
    except ValueError:
        what = f"{text!r} is not a plain number"
    problems.append(Problem(file, node.start_mark.line + 1, dotted(path), what, "put it in quotes"))
    return None


class Unquoted(float):
    """A number with a point that stands without quotes; keeps its spelling so that a message can show it."""

    text: str

    def __new__(cls, value: float, text: str) -> Unquoted:
        number = super().__new__(cls, value)
        number.text = text
        return number
