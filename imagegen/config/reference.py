"""The config's model in, a commented YAML config out that shows every key. Pure; the same bytes every time.

What must be said is said with an example; everything else is commented out, and is a part of a config again when the
one `#` before it is deleted: prose has a blank after its `#`, a key has none.
"""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
import types
import typing
from typing import TYPE_CHECKING, Any, Final

import pydantic

from imagegen.config.fields import keys
from imagegen.config.model import ConfigFile
from imagegen.config.schema import MODELINE
from imagegen.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imagegen.config.fields import Key
    from imagegen.config.schema import Known

_HEAD = """\
# Every key of a config, with what it means, what it takes and what holds when it is left out.
# This file is generated from the model: `make golden` writes it anew, `imagegen schema --format yaml` prints it.
#
# What stands without `#` must be said, or is one choice of several. To use another key, delete the `#` directly
# before it, and before the sections around it.
"""

# Beside the required keys: one runtime, every cloud, and who may reach the builder, which nobody should leave open.
_SAID: Final = frozenset(
    {
        "runtime.containerd",
        *(f"targets.{name}{key}" for name in PROVIDERS for key in ("", ".network", ".network.allowed_cidrs")),
    }
)

_WIDTH: Final = 112
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|https://[A-Za-z0-9./_-]+")
# Words that YAML, or an older YAML, reads as something else than a text.
_NO_TEXT: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_NAMES: Final[Mapping[object, str]] = {str: "text", int: "whole number", bool: "true or false", float: "number"}


@dataclasses.dataclass(frozen=True)
class _Words:
    """What the model itself does not know of its keys: words to choose from, and notes."""

    choices: dict[str, list[str]]
    notes: Mapping[str, str]


def reference_text(known: Known) -> str:
    """Every key of a config."""
    choices = {"windows.release": [scalar(name) for name in known.releases], "overrides": list(known.overrides)}
    noted = _Words(choices, known.notes)
    lines = [MODELINE, *_HEAD.splitlines()]
    every = {key.path: key for key in keys(ConfigFile)}
    for key in _directly_below("", every):
        lines += ["", *_key(key, every, noted, 0)]
    return "\n".join(lines) + "\n"


def _directly_below(prefix: str, every: dict[str, Key]) -> list[Key]:
    return [key for path, key in every.items() if path.startswith(prefix) and "." not in path.removeprefix(prefix)]


def _key(key: Key, every: dict[str, Key], known: _Words, depth: int, lead: str = "") -> Iterator[str]:
    """What is said of a key, and the key; `lead` is the dash of the first key of an item."""
    indent = "  " * depth
    yield from _prose([key.description, _takes(key, known)], indent + "  " * bool(lead))
    mark = indent if _is_said(key, every) else f"{indent}#"
    if not key.inner:
        yield f"{mark}{lead}{key.name}: {flow(_example(key))}"
        return
    yield f"{mark}{lead}{key.name}:"
    members = _directly_below(f"{key.path}{key.mark}.", every)
    if key.mark == ".*":
        yield from _named(key, members, every, known, depth + 1)
    elif key.mark == "[]":
        for number, member in enumerate(members):
            yield from _key(member, every, known, depth + 1 + (number > 0), "" if number else "- ")
    else:
        for member in members:
            yield from _key(member, every, known, depth + 1)


def _is_said(key: Key, every: dict[str, Key]) -> bool:
    """Whether the key stands without `#`: it must be said, in a section that is."""
    if key.path in _SAID:
        return True
    section = key.path.rpartition(".")[0]
    return key.required and (not section or (section in every and _is_said(every[section], every)))


def _named(key: Key, members: list[Key], every: dict[str, Key], known: _Words, depth: int) -> Iterator[str]:
    """Sections by names of free choice: one in its short form, one in its long form."""
    indent = "  " * depth
    (name, short), *_ = _example(key).items()
    yield f"{indent}#{name}: {flow(short)}"
    yield from _prose(["or, with more to say of it:"], indent)
    yield f"{indent}#{next(other for other in known.choices[key.path] if other != name)}:"
    for member in members:
        yield from _key(member, every, known, depth + 1)


def _example(key: Key) -> Any:  # noqa: ANN401 - any value
    return key.field.examples[0] if key.field.examples else key.default


def _takes(key: Key, known: _Words) -> str:
    """The type in plain words, and what holds when the key is left out."""
    words = type_words(key.field.annotation, key.field.metadata)
    if choices := known.choices.get(key.path):
        words += f" ({', '.join(choices)})"
    note = known.notes.get(key.path)
    return "; ".join([words, _left_out(key), *([note] if note else [])])


def _left_out(key: Key) -> str:
    if key.required:
        return "required"
    default = key.default
    if isinstance(default, pydantic.BaseModel) or default in (None, [], {}):
        return "optional"
    return f"default: {flow(default)}"


def type_words(annotation: object, metadata: Iterable[object] = ()) -> str:
    """What a key takes, as people say it."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_words(parts[0], [*metadata, *_flat(parts[1:])])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_words(part, metadata) for part in parts if part is not type(None))
    if origin is typing.Literal:
        return f"one of {', '.join(flow(value) for value in parts)}" if len(parts) > 1 else flow(parts[0])
    if origin is list:
        return f"list of {_several(type_words(parts[0]))}"
    if origin is dict:
        return f"{type_words(parts[1])} by name"
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return "section"
    return f"{_NAMES[annotation]}{_bounds(metadata)}"


def _several(words: str) -> str:
    return {"text": "texts", "section": "sections"}.get(words, words)


def _flat(metadata: Iterable[object]) -> Iterator[object]:
    for item in metadata:
        yield from item.metadata if isinstance(item, pydantic.fields.FieldInfo) else (item,)


def _bounds(metadata: Iterable[object]) -> str:
    bounds = {name: getattr(item, name) for item in metadata for name in ("ge", "le") if hasattr(item, name)}
    return f" from {bounds['ge']} to {bounds['le']}" if len(bounds) > 1 else ""


def _prose(sentences: Iterable[str], indent: str) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
        )


def flow(value: object) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{scalar(key)}: {flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(flow(item) for item in value)}]"
    return scalar(value)


def scalar(value: object) -> str:
    """A single value as YAML: quotes only where it would be read as something else without them."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN_TEXT.fullmatch(value) and value.lower() not in _NO_TEXT:
        return value
    plainly = value.isprintable() and value.isascii() and "'" not in value
    return f"'{value}'" if plainly and ("\\" in value or '"' in value) else json.dumps(value, ensure_ascii=False)
