"""Turns a model's complaints about a document into problems with places, plain words and the nearest known name."""

from __future__ import annotations

import math
import re
import typing
from typing import TYPE_CHECKING, Any, Final

import pydantic

from imagegen.documents.yaml import Document, Unquoted
from imagegen.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.documents.yaml import YamlPath
    from imagegen.errors import Problem

# How alike two names must be for one to be offered for the other.
_CLOSE: Final = 0.6
# What older YAML took for true and false.
_SPOKEN: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_LONGEST_QUOTE: Final = 100


def model_problems(
    error: pydantic.ValidationError, document: Document, model: type[pydantic.BaseModel], under: YamlPath = ()
) -> list[Problem]:
    """A model's complaints as problems with places; `under` is where in the document the model's data stands."""
    problems: dict[tuple[YamlPath, str], Problem] = {}
    found = [(item, place_of(item, document, under)) for item in error.errors(include_url=False)]
    misspelt = {_meant(location, model) for item, location in found if item["type"] == "extra_forbidden"}
    for item, location in found:
        # Said once: the misspelt key's own hint names the one that is missing.
        if item["type"] == "missing" and location in misspelt:
            continue
        message, hint = _words(item, location, model)
        problem = document.problem((*under, *location), message, hint)
        problems.setdefault((location, message), problem)
    return list(problems.values())


def place_of(item: Any, document: Document, under: YamlPath = ()) -> YamlPath:  # noqa: ANN401 - pydantic's ErrorDetails
    """Where a complaint stands. pydantic names the tried member of a union too; the document knows no such key."""
    kept: YamlPath = ()
    for index, part in enumerate(item["loc"]):
        is_name = item["type"] in ("missing", "extra_forbidden") and index == len(item["loc"]) - 1
        if is_name or (*under, *kept, part) in document.lines:
            kept = (*kept, part)
    return kept


def _words(item: Any, location: YamlPath, model: type[pydantic.BaseModel]) -> tuple[str, str]:  # noqa: ANN401 - pydantic's ErrorDetails
    kind, given, context = item["type"], item["input"], item.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return f"unknown key {_quoted(location[-1])}", nearest(str(location[-1]), known_keys(model, location[:-1]))
        case "missing":
            return f"{location[-1]!r} is missing", _description(model, location)
        case "string_type" if isinstance(given, Unquoted):
            read_as = "a date" if math.isnan(given) else f"the number {float(given)!r}"
            return f"{given.text} without quotes is {read_as}, not a text", f'write "{given.text}"'
        case "string_type" if isinstance(given, (int, float)) and not isinstance(given, bool):
            return f"{given} is a number, not a text", f'write "{given}"'
        case "string_type":
            return f"must be a text, not {_name_of(given)}", ""
        case "string_pattern_mismatch" if _without_secrets(given) != given:
            hint = "leave it out: what is rendered, logged and recorded holds no secret"
            return f"{_quoted(_without_secrets(given))} has a user, a query or a fragment in it", hint
        case "string_pattern_mismatch":
            hint = f"{_description(model, location)} {_form(model, location, context['pattern'])}".strip()
            # Where a secret's variable is to be named, the secret itself is easily put.
            shown = "this" if str(item["loc"][-1]).endswith("_env") else _quoted(given)
            return f"{shown} does not have the right form", hint
        case "literal_error" if not isinstance(given, str) and f"'{given}'" in str(context.get("expected")):
            return f"{given} is a number, not a text", f'write "{given}"'
        case "literal_error":
            expected = str(context.get("expected", "")).replace("'", '"')
            return f"{_quoted(given)} is not known here", f"choose {expected}"
        case "model_type" | "dict_type" | "list_type" | "int_type" | "bool_type" | "model_attributes_type":
            wanted = {"int_type": "a whole number", "bool_type": "true or false", "list_type": "a list"}.get(
                kind, "keys and values"
            )
            meant = _SPOKEN.get(given) if isinstance(given, str) and kind == "bool_type" else None
            hint = f"write {meant}" if meant else ""
            return f"must be {wanted}, not {_name_of(given)}", hint
        case "greater_than_equal":
            return f"{given} is too small", f"at least {context['ge']}"
        case "less_than_equal":
            return f"{given} is too large", f"at most {context['le']}"
        case "too_short":
            return "must not be empty", _description(model, location)
        case "value_error":
            error = context.get("error", item["msg"])
            return str(error), error.hint if isinstance(error, InvalidValue) else ""
        case _:
            message = str(item["msg"])
            return message[:1].lower() + message[1:], ""


def _without_secrets(text: str) -> str:
    """A text that may be a URL, without the user and the query that it may hold; up to the last @, which a password may
    hold too, as it may hold a slash."""
    return re.sub(r"(?s)(?<=://).*@|[?#].*", "", text) if "://" in text else text


def _name_of(value: object) -> str:
    names = {dict: "keys and values", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), _quoted(value))


def _quoted(value: object) -> str:
    """A value as a message shows it: so much of it that it is recognised."""
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


def nearest(name: str, known: Sequence[str]) -> str:
    """The hint for a name that is not known: what was probably meant, or everything that is known."""
    if close := _close(name, known):
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(known)}" if known else ""


def _close(name: str, known: Sequence[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)


def _meant(path: YamlPath, model: type[pydantic.BaseModel]) -> YamlPath:
    """The place that a misspelt key was probably meant for."""
    return (*path[:-1], *_close(str(path[-1]), known_keys(model, path[:-1])))


def known_keys(model: type[pydantic.BaseModel], path: YamlPath) -> list[str]:
    """The keys that a model knows at a place."""
    inner, _ = _at(model, path)
    return list(inner.model_fields) if inner else []


def _description(model: type[pydantic.BaseModel], path: YamlPath) -> str:
    field = _at(model, path)[1]
    return (field.description or "") if field else ""


def _form(model: type[pydantic.BaseModel], path: YamlPath, pattern: str) -> str:
    """What a right value looks like: the field's own example where it has one."""
    field = _at(model, path)[1]
    example = (field.examples or [None])[0] if field else None
    while isinstance(example, (list, dict)):
        example = next(iter(example.values() if isinstance(example, dict) else example))
    return f"For example {example}" if isinstance(example, str) else f"It must match {pattern}"


def _at(
    model: type[pydantic.BaseModel], path: YamlPath
) -> tuple[type[pydantic.BaseModel] | None, pydantic.fields.FieldInfo | None]:
    """The model that describes a place, and the field there."""
    current: type[pydantic.BaseModel] | None = model
    found: pydantic.fields.FieldInfo | None = None
    for part in path:
        # An index, or a key of free choice: the field around it describes what stands there.
        if current is None or not isinstance(part, str) or part not in current.model_fields:
            continue
        field = current.model_fields[part]
        models = models_in(field.annotation)
        current, found = (models[0] if models else None), field
    return current, found


def models_in(annotation: Any) -> list[type[pydantic.BaseModel]]:  # noqa: ANN401 - any annotation
    """The sections that a type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]
