"""Tells two values of JSON apart, path by path. Pure."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from imagegen.base.errors import Problem
from imagegen.record.reading import shown

_SHOWN_PROBLEMS: Final = 10


def differences(found: object, expected: object, *, place: str, source: str, hint: str) -> Iterator[Problem]:
    """A problem for each value of `found` that is not the expected one. `source` says it: "the manifest"."""
    was, wanted = dict(flatten(found)), dict(flatten(expected))
    was, wanted = _without_parents(was, wanted), _without_parents(wanted, was)
    for name in sorted(was.keys() | wanted.keys()):
        if name not in wanted:
            yield Problem(place, 0, name, f"is {shown(was[name])}, but {source} has no such value", hint)
        elif name not in was:
            yield Problem(place, 0, name, f"is missing, but {source} says {shown(wanted[name])}", hint)
        # As JSON, where true is not 1.
        elif json.dumps(was[name]) != json.dumps(wanted[name]):
            message = f"is {shown(was[name])}, but {source} says {shown(wanted[name])}"
            yield Problem(place, 0, name, message, hint)


def _without_parents(values: Mapping[str, object], others: Iterable[str]) -> dict[str, object]:
    """The values without the empty maps and lists that have entries among the others: those are told one by one."""
    parents = {name[: part.start()] for name in others for part in re.finditer(r"[.\[]", name)}
    return {name: value for name, value in values.items() if value not in ({}, []) or name not in parents}


def first_problems(problems: Iterable[Problem]) -> list[Problem]:
    """The first problems. The last of them says how many more there are."""
    listed = list(problems)
    first = listed[:_SHOWN_PROBLEMS]
    if more := len(listed) - len(first):
        first[-1] = dataclasses.replace(first[-1], message=f"{first[-1].message}, and {more} more")
    return first


def flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each single value with its path. An entry of a list has its name or path in it, if it has one: then its place in
    the list does not matter."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        seen: collections.Counter[str] = collections.Counter()
        for index, item in enumerate(value):
            named = item.get("path", item.get("name", index)) if isinstance(item, Mapping) else index
            seen[str(named)] += 1
            again = f" ({seen[str(named)]})" if seen[str(named)] > 1 else ""
            yield from flatten(item, f"{path}[{named}{again}]")
    else:
        yield path, value
