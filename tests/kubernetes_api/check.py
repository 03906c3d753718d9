"""Checks objects as the API server of a minor with strict field validation does, by what its OpenAPI says."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from tests.kubernetes_api.record import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PLAIN: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "boolean": (bool,), "number": (int, float)}


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table


def wrong_fields(item: Mapping[str, Any], minor: int) -> list[str]:
    """What the API server of Kubernetes 1.<minor> refuses in an object."""
    name = f"{item.get('apiVersion')} {item.get('kind')}"
    definition = _table()["kinds"].get(name)
    if definition is None or not _fields(definition, minor):
        return [f"Kubernetes 1.{minor} has no {name}"]
    return list(_wrong(item, definition, minor, item["kind"]))


@functools.cache
def _fields(definition: str, minor: int) -> dict[str, str]:
    """The fields that the definition has in this minor, with their types."""
    fields = {}
    for field, text in _table()["definitions"].get(definition, {}).items():
        for part in text.split("; "):
            kind, _, range_ = part.rpartition(" ")
            first, _, last = range_.partition("-")
            if int(first) <= minor <= int(last):
                fields[field] = kind
    return fields


def _wrong(value: object, kind: str, minor: int, path: str) -> Iterator[str]:
    if kind.startswith("["):
        items = value if isinstance(value, list) else []
        yield from [] if isinstance(value, list) else [f"{path} is no list"]
        for number, item in enumerate(items):
            yield from _wrong(item, kind[1:-1], minor, f"{path}[{number}]")
    elif kind.startswith("{"):
        yield from [] if isinstance(value, dict) else [f"{path} is no map"]
        for key, item in (value if isinstance(value, dict) else {}).items():
            yield from _wrong(item, kind[1:-1], minor, f"{path}.{key}")
    elif kind in _PLAIN:
        is_right = isinstance(value, _PLAIN[kind]) and (kind == "boolean" or not isinstance(value, bool))
        yield from [] if is_right else [f"{path} is no {kind}"]
    elif fields := _fields(kind, minor):
        yield from _wrong_object(value, fields, minor, path)


def _wrong_object(value: object, fields: Mapping[str, str], minor: int, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} is no object"
        return
    yield from (
        f"{path}.{name} is missing" for name, kind in fields.items() if kind.endswith("!") and name not in value
    )
    for name, item in value.items():
        if name not in fields:
            yield f"{path} has no field {name}"
        else:
            yield from _wrong(item, fields[name].rstrip("!"), minor, f"{path}.{name}")
