"""Turns a model's complaints about a document into problems with places, plain words and the nearest known name."""

from __future__ import annotations

import types
import typing
from typing import TYPE_CHECKING, Any

import pydantic

from imagegen.documents.yaml import Document, Unquoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.documents.yaml import YamlPath
    from imagegen.errors import Problem


def model_problems(
    error: pydantic.ValidationError, document: Document, model: type[pydantic.BaseModel], under: YamlPath = ()
) -> list[Problem]:
    """A model's complaints as problems with places; `under` is where in the document the model's data stands."""
    problems: dict[tuple[YamlPath, str], Problem] = {}
    for item in error.errors(include_url=False):
        location = _without_union_tags(item["loc"], document, under)
        message, hint = _words(item, location, model)
        problem = document.problem((*under, *location), message, hint)
        problems.setdefault((location, message), problem)
    return list(problems.values())


def _without_union_tags(loc: tuple[str | int, ...], document: Document, under: YamlPath) -> YamlPath:
    """pydantic names the tried member of a union in the location; the document knows no such key."""
    kept: YamlPath = ()
    for index, part in enumerate(loc):
        known = (*under, *kept, part) in document.lines
        if known or (index == len(loc) - 1 and not any(mark in str(part) for mark in "([")):
            kept = (*kept, part)
    return kept


def _words(item: Any, location: YamlPath, model: type[pydantic.BaseModel]) -> tuple[str, str]:  # noqa: ANN401 - pydantic's ErrorDetails
    kind, given, context = item["type"], item["input"], item.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return f"unknown key {location[-1]!r}", nearest(str(location[-1]), known_keys(model, location[:-1]))
        case "missing":
            return f"{location[-1]!r} is missing", "add it; configs/ shows whole configs"
        case "string_type" if isinstance(given, Unquoted):
            return f"{given.text} without quotes is the number {float(given)!r}, not a text", f'write "{given.text}"'
        case "string_type" if isinstance(given, (int, float)):
            return f"{given} is a number, not a text", f'write "{given}"'
        case "string_type":
            return f"must be a text, not {_name_of(given)}", ""
        case "string_pattern_mismatch":
            return f"{given!r} does not have the right form", f"it must match {context.get('pattern')}"
        case "literal_error":
            expected = str(context.get("expected", "")).replace("'", '"')
            return f"{given!r} is not known here", f"choose {expected}"
        case "model_type" | "dict_type" | "list_type" | "int_type" | "bool_type" | "model_attributes_type":
            wanted = {"int_type": "a whole number", "bool_type": "true or false", "list_type": "a list"}.get(
                kind, "keys and values"
            )
            return f"must be {wanted}, not {_name_of(given)}", ""
        case "value_error":
            return str(context.get("error", item["msg"])), ""
        case _:
            message = str(item["msg"])
            return message[:1].lower() + message[1:], ""


def _name_of(value: object) -> str:
    names = {dict: "keys and values", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"{value!r}")


def nearest(name: str, known: Sequence[str]) -> str:
    """The hint for a name that is not known: what was probably meant, or everything that is known."""
    import difflib

    if close := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(known)}" if known else ""


def known_keys(model: type[pydantic.BaseModel], path: YamlPath) -> list[str]:
    """The keys that a model knows at a place."""
    current: Any = model
    for part in path:
        current = _models_in(current.model_fields[part].annotation)[0] if _has_field(current, part) else None
        if current is None:
            return []
    return list(current.model_fields)


def _has_field(model: Any, part: str | int) -> bool:  # noqa: ANN401 - a model class or None
    return part in model.model_fields and bool(_models_in(model.model_fields[part].annotation))


def _models_in(annotation: Any) -> list[type[pydantic.BaseModel]]:  # noqa: ANN401 - any annotation
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    origin = typing.get_origin(annotation)
    if origin in (typing.Annotated, typing.Union, types.UnionType, list, dict):
        return [model for part in typing.get_args(annotation) for model in _models_in(part)]
    return []
