"""The canonical JSON of a value, and its digest."""

import dataclasses
import hashlib
import json


def digest(value: object) -> str:
    """The sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def canonical(value: object) -> bytes:
    """The canonical JSON of a value, which may hold dataclasses."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields).encode()


def _fields(value: object) -> dict[str, object]:
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"{type(value).__name__} has no canonical JSON")
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
