"""What the proxy hands to whoever plays a host, and what it gets back: plain values, no sockets."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

# Parsed JSON: its shape is what the sender chose, and is looked at where it is used.
Json = Any


@dataclasses.dataclass(frozen=True)
class Request:
    """One HTTP request as it arrived inside the tunnel; header names are lower-case, the path is not decoded."""

    method: str
    host: str
    path: str
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    target: str = ""

    def form(self) -> dict[str, str]:
        """The fields of a form body."""
        return dict(urllib.parse.parse_qsl(self.body.decode("utf-8"), keep_blank_values=True))

    def json(self) -> Json:
        """The JSON body; an empty body is an empty object."""
        return json.loads(self.body) if self.body else {}


@dataclasses.dataclass(frozen=True)
class Response:
    """The answer. `note` names the operation in the journal; a non-empty `fault` fails the rehearsal."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    note: str = ""
    fault: str = ""

    @classmethod
    def of_json(cls, status: int, value: object, *, headers: Mapping[str, str] | None = None) -> Response:
        """A JSON answer."""
        kept = (("Content-Type", "application/json; charset=utf-8"), *(headers or {}).items())
        return cls(status, json.dumps(value).encode(), kept)

    @classmethod
    def of_text(cls, status: int, text: str) -> Response:
        """A plain text answer."""
        return cls(status, text.encode(), (("Content-Type", "text/plain; charset=utf-8"),))

    def header(self, name: str) -> str:
        """The first header of that name, or nothing."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


Host = Callable[[Request], Response]

# An injected answer that is none: the connection is cut, as a network does.
HANG_UP = Response(0)


def parse_target(target: str) -> tuple[str, dict[str, str]]:
    """Path and query of a request target in origin form; of a repeated name the last value counts."""
    path, _, query = target.partition("?")
    return path or "/", dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
