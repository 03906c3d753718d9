"""Makes configs/reference.yaml from the config's model: a config with every key and its description. Pure; the same
bytes every time.

Required keys have an example as their value. All other keys are commented out. To use one, a user deletes the `#`
before it: comments have a space after the `#`, keys do not.
"""

import json
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pydantic

from imagegen.config.fields import Key, keys
from imagegen.config.model import ConfigFile
from imagegen.config.schema import MODELINE, Known
from imagegen.providers.registry import PROVIDERS

_HEAD = """\
# Every key of a config, with its description, its type and its default.
# This file is generated from the model: `make golden` rewrites it, `imagegen schema --format yaml` prints it.
#
# Keys without `#` are required, or are one choice of several. To use another key, delete the `#` before it and before
# the sections around it.
"""

# Shown without `#` in addition to the required keys: one runtime, every cloud, and the networks that can reach the
# builder, which nobody should leave open.
_SHOWN: Final = frozenset(
    {
        "runtime.containerd",
        *(f"targets.{name}{key}" for name in PROVIDERS for key in ("", ".network", ".network.allowed_cidrs")),
    }
)

_WIDTH: Final = 112
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|https://[A-Za-z0-9./_-]+")
# Words that YAML 1.2 or 1.1 does not read as a string.
_NO_STRING: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_NAMES: Final[Mapping[object, str]] = {str: "string", int: "integer", bool: "true or false", float: "number"}
_PLURALS: Final = {"string": "strings", "section": "sections"}


def reference_text(known: Known) -> str:
    """The reference config."""
    lines = [MODELINE, *_HEAD.splitlines()]
    every = {key.path: key for key in keys(ConfigFile)}
    for key in _directly_below("", every):
        lines += ["", *_key(key, every, known, 0)]
    return "\n".join(lines) + "\n"


def _directly_below(prefix: str, every: dict[str, Key]) -> list[Key]:
    return [key for path, key in every.items() if path.startswith(prefix) and "." not in path.removeprefix(prefix)]


def _key(key: Key, every: dict[str, Key], known: Known, depth: int, lead: str = "") -> Iterator[str]:
    """The comments of a key, and the key. `lead` is the dash before the first key of a list's item."""
    indent = "  " * depth
    yield from _prose([key.field.description or "", _type_and_default(key, known)], indent + "  " * bool(lead))
    start = f"{indent if _is_shown(key, every) else f'{indent}#'}{lead}{key.path.rpartition('.')[2]}:"
    yield start if key.inner else f"{start} {flow(_example(key))}"
    members = _directly_below(f"{key.path}{key.mark}.", every)
    if key.inner and key.mark == ".*":
        yield from _named(key, members, every, known, depth + 1)
    else:
        is_item = key.mark == "[]"
        for number, member in enumerate(members):
            is_later = is_item and number > 0
            yield from _key(member, every, known, depth + 1 + is_later, "- " if is_item and not is_later else "")


def _is_shown(key: Key, every: dict[str, Key]) -> bool:
    """Whether the key has no `#`: it is required, in a section that has no `#`."""
    section = key.path.rpartition(".")[0]
    is_open = not section or (section in every and _is_shown(every[section], every))
    return key.path in _SHOWN or (key.field.is_required() and is_open)


def _named(key: Key, members: list[Key], every: dict[str, Key], known: Known, depth: int) -> Iterator[str]:
    """A map of sections: one entry in its short form, and one in its long form."""
    indent = "  " * depth
    (name, short), *_ = _example(key).items()
    yield f"{indent}#{name}: {flow(short)}"
    yield from _prose(["or, in its long form:"], indent)
    yield f"{indent}#{next(other for other in _choices(key, known) if other != name)}:"
    for member in members:
        yield from _key(member, every, known, depth + 1)


def _example(key: Key) -> Any:  # noqa: ANN401 - any value
    return key.field.examples[0] if key.field.examples else key.default


def _choices(key: Key, known: Known) -> list[str]:
    """The known values of a key, or the known names in its map."""
    return {"windows.release": [scalar(name) for name in known.releases], "overrides": list(known.overrides)}.get(
        key.path, []
    )


def _type_and_default(key: Key, known: Known) -> str:
    choices, default = _choices(key, known), key.default
    if key.field.is_required():
        left_out = "required"
    elif isinstance(default, pydantic.BaseModel) or default in (None, [], {}):
        left_out = "optional"
    else:
        left_out = f"default: {flow(default)}"
    named = f" ({', '.join(choices)})" if choices else ""
    kind = _type_name(key.field.annotation, key.field.metadata)
    return "; ".join(filter(None, [f"{kind}{named}", left_out, known.notes.get(key.path)]))


def _type_name(annotation: Any, metadata: Iterable[object] = ()) -> str:  # noqa: ANN401 - any type
    """The type of a value, in words."""
    field = pydantic.fields.FieldInfo.from_annotation(annotation)
    metadata, annotation = [*metadata, *field.metadata], field.annotation
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        names = (_type_name(part, metadata) for part in parts if part is not type(None))
        return " or ".join(dict.fromkeys(names))
    if origin is typing.Literal:
        return f"one of {', '.join(flow(value) for value in parts)}" if len(parts) > 1 else flow(parts[0])
    if origin is list:
        inner = _type_name(parts[0])
        return f"list of {_PLURALS.get(inner, inner)}"
    if origin is dict:
        return f"map from name to {_type_name(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return "section"
    bounds = {name: getattr(item, name) for item in metadata for name in ("ge", "le") if hasattr(item, name)}
    return _NAMES[annotation] + (f" from {bounds['ge']} to {bounds['le']}" if len(bounds) > 1 else "")


def _prose(sentences: Iterable[str], indent: str) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
        )


def flow(value: object) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{scalar(key)}: {_inside(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inside, value))}]"
    return scalar(value)


def _inside(value: object) -> str:
    # Some YAML parsers, also the fast one of imagegen, reject a colon in a plain word inside brackets.
    return json.dumps(value) if isinstance(value, str) and ":" in value else flow(value)


def scalar(value: object) -> str:
    """A single value as YAML. It has quotes only if YAML would read it as another type without them."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN_TEXT.fullmatch(value) and value.lower() not in _NO_STRING:
        return value
    plainly = value.isprintable() and value.isascii() and "'" not in value
    return f"'{value}'" if plainly and ("\\" in value or '"' in value) else json.dumps(value, ensure_ascii=False)
