"""The calls between the child with cloudbase-init and the process with the model machine: one JSON text a line."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any, Final

# A value of JSON, or bytes, or a list or mapping of them. Each call's own code knows its form.
Value = Any

UNKNOWN: Final = "unknown"
# Before the names of the calls of cloudbase-init's own layer for Windows, and of its manager of certificates.
OS: Final = "os_"
X509: Final = "x509_"
# The variable with the port on loopback, and with the secret that the child sends first.
ADDRESS: Final = "IMAGEGEN_CHANNEL"
_BYTES: Final = "$bytes"


class Channel:
    """One end. Each side waits for the answer to its call before it makes another."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lines = end.makefile("rb")

    def send(self, value: Value) -> None:
        self._end.sendall(encode(value))

    def receive(self, limit: int = -1) -> Value:
        """The next value, or None when the other end is closed, or has sent more than `limit` bytes for it."""
        line = self._lines.readline(limit)
        # The other end may close, or be killed, in the middle of a line.
        return decode(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        self._lines.close()
        self._end.close()


def encode(value: Value) -> bytes:
    """The line for a value. TypeError for one of another type."""
    return json.dumps(_to_json(value)).encode() + b"\n"


def decode(line: bytes) -> Value:
    return _from_json(json.loads(line))


def _to_json(value: Value) -> Value:
    if isinstance(value, bytes | bytearray):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {name: _to_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(one) for one in value]
    return value


def _from_json(value: Value) -> Value:
    if isinstance(value, dict):
        if set(value) == {_BYTES}:
            return base64.b64decode(value[_BYTES])
        return {name: _from_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_from_json(one) for one in value]
    return value
