"""Reads documents that somebody else may have written: bounded, without duplicate keys, and by closed models.

Touches only the files that it is given.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import pydantic

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.files import read_file
from imagegen.steps.resource import Strict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_Model = TypeVar("_Model", bound=Strict)

ATTEST_AGAIN: Final = "make it again from the manifest of the build: `imagegen attest MANIFEST`"
_LONGEST_VALUE: Final = 100
# A document with a wrong structure has an error in each of its entries.
_SHOWN_ERRORS: Final = 5
_MESSAGES: Final = {"extra_forbidden": "unknown key", "missing": "the key is required"}


class InvalidDocument(Exception):
    """A document that cannot be read, or that is not what it should be."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


def read_bytes(path: Path, *, limit: int, hint: str) -> bytes:
    """The bytes of a document. A file that is missing, unreadable or too large is an InvalidDocument."""
    try:
        return read_file(path, limit=limit, shown_as="the file")
    except FileNotFoundError:
        raise InvalidDocument([Problem(str(path), 0, "", "does not exist", hint)]) from None
    except ConfigError as error:
        raise InvalidDocument([Problem(str(path), 0, "", error.message, error.hint or hint)]) from None


def parse_json(data: bytes, shown_as: str, hint: str) -> object:
    """The value of a JSON document. JSON readers differ in what they make of duplicate keys, so they are refused."""
    try:
        value: object = json.loads(data, object_pairs_hook=_without_duplicates, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([Problem(shown_as, 0, "", f"is not valid JSON: {error}", hint)]) from None
    return value


def parse_model(value: object, model: type[_Model], shown_as: str, hint: str) -> _Model:
    """The value as this model."""
    with stating(shown_as, hint):
        return model.model_validate(value)


@contextlib.contextmanager
def stating(shown_as: str, hint: str) -> Iterator[None]:
    """Within it, a value of the document that cannot be stated in another one makes it an InvalidDocument."""
    try:
        yield
    except pydantic.ValidationError as error:
        raise InvalidDocument(list(_problems(error, shown_as, hint))) from None
    except ValueError as error:
        raise InvalidDocument(
            [Problem(shown_as, 0, "", f"has a value that cannot be attested: {error}", hint)]
        ) from None


def shown(value: object) -> str:
    """A value as messages show it, cut if it is long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _problems(error: pydantic.ValidationError, shown_as: str, hint: str) -> Iterator[Problem]:
    items = error.errors(include_url=False)
    for number, item in enumerate(items[:_SHOWN_ERRORS], 1):
        place = ".".join(str(part) for part in item["loc"] if part != "[key]")
        more = len(items) - number if number == _SHOWN_ERRORS else 0
        yield Problem(shown_as, 0, shown(place), _message(item) + (f", and {more} more errors" if more else ""), hint)


def _message(item: ErrorDetails) -> str:
    if item["type"] in _MESSAGES:
        return _MESSAGES[item["type"]]
    if item["type"] == "string_pattern_mismatch":
        return f'"{shown(item["input"])}" is not a valid value'
    message = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return message[:1].lower() + message[1:]


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {shown(key)!a}")
        found[key] = value
    return found


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
