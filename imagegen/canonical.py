"""The canonical JSON of a value, and its digest."""

import hashlib
import json


def digest(value: object) -> str:
    """The sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def canonical(value: object) -> bytes:
    """The canonical JSON of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
