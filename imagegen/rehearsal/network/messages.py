"""HTTP requests and responses between the proxy and the stand-ins of hosts."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

# Parsed JSON from a client. Its structure is checked where it is used.
Json = Any


@dataclasses.dataclass(frozen=True)
class Request:
    """One HTTP request. Header names are in lower case, and the path is not decoded."""

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
        """The JSON body. An empty body is an empty object."""
        return json.loads(self.body) if self.body else {}


@dataclasses.dataclass(frozen=True)
class Response:
    """One HTTP response. `note` is the operation in the journal. A `fault` that is not empty fails the rehearsal."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    note: str = ""
    fault: str = ""

    @classmethod
    def of_json(cls, status: int, value: object, *, headers: Mapping[str, str] | None = None) -> Response:
        """A JSON response."""
        all_headers = (("Content-Type", "application/json; charset=utf-8"), *(headers or {}).items())
        return cls(status, json.dumps(value).encode(), all_headers)

    @classmethod
    def of_text(cls, status: int, text: str) -> Response:
        """A plain text response."""
        return cls(status, text.encode(), (("Content-Type", "text/plain; charset=utf-8"),))

    def header(self, name: str) -> str:
        """The value of the first header with this name; empty if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


Host = Callable[[Request], Response]

# An injected response that closes the connection without an answer.
HANG_UP = Response(0)


def parse_target(target: str) -> tuple[str, dict[str, str]]:
    """Split a request target in origin form into path and query. The last value of a repeated name counts."""
    path, _, query = target.partition("?")
    return path or "/", dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
