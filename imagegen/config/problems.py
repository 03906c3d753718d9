"""Turns the validation errors of a model into problems with their places, clear messages and hints."""

from __future__ import annotations

import json
import math
import re
import typing
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import pydantic

from imagegen.base.errors import InvalidValue, Problem
from imagegen.config.yaml import Document, Unquoted, YamlPath, short

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# A typing slip is one wrong letter of a short name, and nearly two of a longer one, as difflib measures it.
_SHORT_NAME: Final = 4
_SHORT_SLIP: Final = 1.02
_SLIP: Final = 1.9
_LEAST_LIKENESS: Final = 0.65
_WIDEST_LIST: Final = 200
_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
# The keys of earlier versions, and what holds in their place.
_REMOVED: Final[dict[YamlPath, str]] = {
    ("artifacts", "signatures", "msi_contents"): "imagegen no longer reads the files inside an MSI package: the "
    "signature of the package covers them",
}
# Words that older YAML reads as true and false.
_OLD_BOOLEANS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}
# The keys whose items messages do not name like the key without its s.
_SINGULAR: Final = {"allowed_cidrs": "network", "allowed_hosts": "host", "registry_mirrors": "mirror"}


def model_problems(
    error: pydantic.ValidationError, document: Document, model: type[pydantic.BaseModel], under: YamlPath = ()
) -> list[Problem]:
    """A model's validation errors as problems. `under` is the path of the model's data in the document."""
    problems: dict[tuple[YamlPath, str], Problem] = {}
    errors = [(item, place_of(item, document, under)) for item in error.errors(include_url=False)]
    # The keys that misspelt keys were probably meant for.
    misspelt = {
        (*path, closest(str(name), known_keys(model, tuple(path))))
        for *path, name in (item["loc"] for item, _ in errors if item["type"] == "extra_forbidden")
    }
    for item, location in errors:
        # Reported once: the hint of the misspelt key names the missing key.
        if item["type"] != "missing" or item["loc"] not in misspelt:
            message, hint = _describe(item, location, model)
            problems.setdefault((location, message), document.problem((*under, *location), message, hint))
    return list(problems.values())


def place_of(item: ErrorDetails, document: Document, under: YamlPath = ()) -> YamlPath:
    """The path of an error in the document. pydantic's own path also names members of unions."""
    kept: YamlPath = ()
    parts = item["loc"]
    if item["type"] == "union_tag_invalid":
        parts = (*parts, item["ctx"]["discriminator"].strip("'"))
    for index, part in enumerate(parts):
        is_name = item["type"] in ("missing", "extra_forbidden") and index == len(parts) - 1
        if is_name or (*under, *kept, part) in document.lines:
            kept = (*kept, part)
    return kept


def _describe(item: ErrorDetails, location: YamlPath, model: type[pydantic.BaseModel]) -> tuple[str, str]:
    """What is wrong with a value, and what to write instead."""
    kind, given, context = item["type"], item["input"], item.get("ctx", {})
    # With the member of a union that pydantic tried: a target's settings are those of its provider.
    tried = item["loc"]
    match kind:
        case "extra_forbidden" if location in _REMOVED:
            return _REMOVED[location], "remove the key"
        case "extra_forbidden":
            return f"unknown key {quoted(location[-1])}", nearest(str(location[-1]), known_keys(model, tried[:-1]))
        case "missing":
            return f"the key {quoted(location[-1])} is required", _missing_hint(model, tried)
        case "string_type" if isinstance(given, Unquoted):
            read_as = "a date" if math.isnan(given) else f"the number {float(given)!r}"
            return f"{given.text} without quotes is {read_as}, not a string", f'write "{given.text}"'
        case "string_type" if isinstance(given, (int, float)) and not isinstance(given, bool):
            return f"must be a string, not the number {given}", f'write "{given}"'
        case "string_type":
            meant = given[0] if isinstance(given, list) and len(given) == 1 else None
            hint = f"write {quoted(_without_secrets(meant))}" if isinstance(meant, str) else ""
            return f"must be a string, not {type_of(given)}", hint
        case "string_pattern_mismatch":
            return _describe_mismatch(item, location, model)
        case "literal_error" if not isinstance(given, str) and f"'{given}'" in str(context.get("expected")):
            return f"must be a string, not the number {given}", f'write "{given}"'
        case "union_tag_not_found":
            key, known = context["discriminator"].strip("'"), known_keys(model, tried[:-1])
            name = str(location[-1])
            hint = nearest(name, known) if closest(name, known) else f"write {key}: {known[0]}"
            return f"must say its {key}: {' or '.join(known)}", hint
        case "union_tag_invalid" | "literal_error":
            expected, given = str(context.get("expected_tags", context.get("expected"))), context.get("tag", given)
            known = re.findall("'([^']*)'", expected) or [expected]
            return f"unknown {_noun(location)} {quoted(given)}", nearest(str(given), known)
        case "model_type" | "dict_type" | "list_type" | "int_type" | "bool_type" | "model_attributes_type":
            wanted = {"int_type": "an integer", "bool_type": "true or false", "list_type": "a list"}.get(kind, "a map")
            return f"must be {wanted}, not {type_of(given)}", _hint_for_type(kind, given, model, tried)
        case "greater_than_equal":
            return f"{given} is below the minimum of {context['ge']}", f"write {context['ge']} or more"
        case "less_than_equal":
            return f"{given} is above the maximum of {context['le']}", f"write {context['le']} or less"
        case "too_short":
            return "must not be empty", _description(model, tried)
        case "value_error":
            error = context.get("error", item["msg"])
            return str(error), error.hint if isinstance(error, InvalidValue) else ""
        case _:
            message = str(item["msg"])
            return message[:1].lower() + message[1:], ""


def _hint_for_type(kind: str, given: object, model: type[pydantic.BaseModel], path: YamlPath) -> str:
    """What to write in place of a value of another type; empty if that cannot be told."""
    text = str(given)
    if kind == "bool_type" and text in _OLD_BOOLEANS:
        return f"write {_OLD_BOOLEANS[text]}"
    if kind == "list_type" and isinstance(given, str):
        return f"write [{quoted(_without_secrets(given))}]"
    if kind == "list_type":
        return "write [{…}], or each item after a dash" if isinstance(given, dict) else ""
    if kind == "int_type":
        return _hint_for_number(text, _unit(model, path))
    keys = known_keys(model, path)
    return f"write a map with keys such as {keys[0]}" if keys and kind != "bool_type" else ""


def _hint_for_number(text: str, unit: str) -> str:
    """The number in a text. A time is converted to the unit of the key."""
    number = re.match("([0-9]{1,9}) ?([a-zA-Z]*)", text)
    if number is None:
        return ""
    if unit not in _SECONDS:
        return f"write {number[1]}" + (f" ({unit})" if unit else "")
    given = next((one for one in _SECONDS if number[2] and one.startswith(number[2].lower())), unit)
    amount, rest = divmod(int(number[1]) * _SECONDS[given], _SECONDS[unit])
    return f"write {amount + bool(rest)} ({unit})"


def _unit(model: type[pydantic.BaseModel], path: YamlPath) -> str:
    """The unit of a key: the end of its name, or the first word of its description; empty if it has none."""
    ends = {"_s": "seconds", "_days": "days", "_mb": "MB", "_gb": "GB"}
    name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
    word = _description(model, path).partition(" ")[0].lower()
    return next((unit for end, unit in ends.items() if name.endswith(end)), word if word in _SECONDS else "")


def _missing_hint(model: type[pydantic.BaseModel], path: YamlPath) -> str:
    """The key with an example, or what it is."""
    example = _example_of(_at(model, path)[1])
    return f"write {path[-1]}: {example}" if example else _description(model, path)


def _example_of(field: pydantic.fields.FieldInfo | None) -> str:
    """A value for a key, in one line; empty if there is no example for all that it needs."""
    if field is None:
        return ""
    if field.examples:
        return json.dumps(field.examples[0], ensure_ascii=False)
    inner = next(iter(models_in(field.annotation)), None)
    required = {name: one for name, one in inner.model_fields.items() if one.is_required()} if inner else {}
    parts = {name: _example_of(one) for name, one in required.items()}
    if not parts or not all(parts.values()):
        return ""
    return f"{{{', '.join(f'{name}: {text}' for name, text in parts.items())}}}"


def _describe_mismatch(item: ErrorDetails, location: YamlPath, model: type[pydantic.BaseModel]) -> tuple[str, str]:
    """Why a string does not match its pattern, with the string that was probably meant or an example as the hint."""
    given, pattern, tried = item["input"], item["ctx"]["pattern"], item["loc"]
    if _without_secrets(given) != given:
        hint = "remove it: rendered files, logs and manifests must not hold secrets"
        return f"{quoted(_without_secrets(given))} must not have a user, a query or a fragment", hint
    is_https = pattern.startswith("^https://")
    if is_https and not given.startswith("https://"):
        return f"{quoted(given)} must start with https://", _form(model, tried, pattern)
    if str(item["loc"][-1]).endswith("_env"):
        # The value is not shown: users may write the secret itself instead of its variable.
        return "this is not a valid name of an environment variable", _form(model, tried, pattern)
    if (meant := _meant_string(given, pattern)) is not None:
        hint = f'write "{meant}"'
    elif re.fullmatch(r"[0-9]+\.[0-9]+", given) and re.search(pattern, f"{given}.0"):
        hint = f'write all three numbers, such as "{given}.0"'
    else:
        hint = f"{_description(model, tried)} {_form(model, tried, pattern)}".strip()
    return f"{quoted(given)} is not a valid {'URL' if is_https else _noun(location)}", hint


def _meant_string(given: str, pattern: str) -> str | None:
    """The string with a common mistake corrected, if it matches then."""
    # Where a host is asked for, a URL is a common mistake.
    host = given.partition("://")[2].partition("/")[0] if pattern.startswith("^[^/") else given
    tries = (host, given.strip(), given.removeprefix("v"), given.lower(), given.rstrip("/"), given.replace("_", "-"))
    return next((meant for meant in tries if meant != given and re.search(pattern, meant)), None)


def _noun(location: YamlPath) -> str:
    """What messages call the value of a key: the key's name."""
    name = next((str(part) for part in reversed(location) if isinstance(part, str)), "value")
    word = _SINGULAR.get(name) or (name if isinstance(location[-1], str) else name.removesuffix("s"))
    return word.replace("_", " ")


def _without_secrets(text: str) -> str:
    """A text without the credentials and the query of a URL. They end at the last @: a password may hold @ and /."""
    return re.sub(r"(?s)(?<=://).*@|[?#].*", "", text) if "://" in text else text


def type_of(value: object) -> str:
    """What messages call the type of a value."""
    names = {dict: "a map", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), quoted(value))


def quoted(value: object) -> str:
    """A value as messages show it, cut if it is long."""
    return short(json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value), 100)


def nearest(name: str, known: Sequence[str]) -> str:
    """The hint for an unknown name: the known name that was probably meant, or the list of known names."""
    if (meant := closest(name, known)) is not None:
        return f"did you mean {quoted(meant)}?"
    text = ", ".join(known)
    if len(text) > _WIDEST_LIST:
        text = f"{text[: _WIDEST_LIST + 1].rpartition(', ')[0]}, …"
    return f"known: {text}" if known else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that differs from `name` by a typing slip or by the order of its words; None if there is none."""
    # Few configs have an unknown name, and importing this takes as long as reading a config.
    import difflib

    plain = {other.lower(): other for other in known}
    slip = _SHORT_SLIP if len(name) <= _SHORT_NAME else _SLIP
    near = difflib.get_close_matches(name.lower(), plain, 1, max(_LEAST_LIKENESS, 1 - slip / max(len(name), 1)))
    return plain[near[0]] if near else next((other for other in plain.values() if _words(other) == _words(name)), None)


def _words(name: str) -> list[str]:
    return sorted(re.split(r"[^a-z0-9]+", name.lower()))


def known_keys(model: type[pydantic.BaseModel], path: YamlPath) -> list[str]:
    """The keys of a model at a path."""
    inner, _ = _at(model, path)
    return list(inner.model_fields) if inner else []


def _description(model: type[pydantic.BaseModel], path: YamlPath) -> str:
    field = _at(model, path)[1]
    return (field.description or "") if field else ""


def _form(model: type[pydantic.BaseModel], path: YamlPath, pattern: str) -> str:
    """What a valid value looks like: the field's example, or else its pattern."""
    field = _at(model, path)[1]
    example = (field.examples or [None])[0] if field else None
    while isinstance(example, (list, dict)):
        example = next(iter(example.values() if isinstance(example, dict) else example))
    return f"For example {example}" if isinstance(example, str) else f"It must match {pattern}"


def _at(
    model: type[pydantic.BaseModel], path: YamlPath
) -> tuple[type[pydantic.BaseModel] | None, pydantic.fields.FieldInfo | None]:
    """The model at a path, and the field there."""
    current: type[pydantic.BaseModel] | None = model
    found: pydantic.fields.FieldInfo | None = None
    for part in path:
        # An index or a free key: the field around it describes the value.
        if current is not None and isinstance(part, str) and part in current.model_fields:
            found = current.model_fields[part]
            current = next(iter(models_in(found.annotation)), None)
    return current, found


def models_in(annotation: object) -> list[type[pydantic.BaseModel]]:
    """The models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]
