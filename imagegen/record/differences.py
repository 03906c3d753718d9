"""Tells two JSON documents apart, value by value. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from imagegen.base.errors import Problem
from imagegen.record.reading import shown

_SHOWN_PROBLEMS: Final = 10


def differences(found: object, expected: object, *, place: str, source: str, hint: str) -> Iterator[Problem]:
    """A problem for each value of `found` that is not the expected one. `source` says it: "the manifest"."""
    was, wanted = dict(_values(found)), dict(_values(expected))
    for name in sorted(was.keys() | wanted.keys()):
        if name not in wanted:
            yield Problem(place, 0, name, f"is {shown(was[name])}, but {source} has no such value", hint)
        elif name not in was:
            yield Problem(place, 0, name, f"is missing, but {source} says {shown(wanted[name])}", hint)
        # As JSON, where true is not 1.
        elif json.dumps(was[name]) != json.dumps(wanted[name]):
            message = f"is {shown(was[name])}, but {source} says {shown(wanted[name])}"
            yield Problem(place, 0, name, message, hint)


def first_problems(problems: Iterable[Problem]) -> list[Problem]:
    """The first problems. The last of them says how many more there are."""
    listed = list(problems)
    first = listed[:_SHOWN_PROBLEMS]
    if more := len(listed) - len(first):
        first[-1] = dataclasses.replace(first[-1], message=f"{first[-1].message}, and {more} more")
    return first


def _values(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each single value with its path. An entry of a list has its name in the path, if it has one."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _values(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            name = item.get("name", index) if isinstance(item, Mapping) else index
            yield from _values(item, f"{path}[{name}]")
    else:
        yield path, value
