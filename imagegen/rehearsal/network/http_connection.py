"""One HTTP connection to a server on loopback: how its requests are read, answered and kept from blocking others."""

from __future__ import annotations

import contextlib
import http.server
import logging
from typing import ClassVar

from imagegen.rehearsal.network.messages import Host, Request, Response, parse_target

_log = logging.getLogger(__name__)

IDLE_S = 900.0
MAX_BODY = 256 * 1024 * 1024
_BODILESS = (204, 304)


class BodyError(Exception):
    """A request body that is not valid HTTP."""


def answer_request(host: Host, request: Request) -> Response:
    """Let the host answer. An error in a stand-in must fail the rehearsal, and not block the client."""
    try:
        return host(request)
    except Exception as error:
        _log.exception("the host %s failed", request.host)
        fault = f"the stand-in of {request.host} failed on {request.method} {request.path}: {error!r}"
        return Response(500, fault.encode(), fault=fault)


class HttpConnection(http.server.BaseHTTPRequestHandler):
    """Reads the requests of one connection. Its subclasses find the host that answers them."""

    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float | None] = IDLE_S

    def finish(self) -> None:
        # The client may have closed the connection before the output was flushed.
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)

    def handle_expect_100(self) -> bool:
        # Inside TLS the writer has a buffer, and the client sends its body only after this answer.
        result = super().handle_expect_100()
        self.wfile.flush()
        return result

    def make_request(self, host: str, target: str, body: bytes) -> Request:
        """The request that was read, with its target in origin form."""
        path, query = parse_target(target)
        headers = {key.lower(): value for key, value in self.headers.items()}
        return Request(self.command, host, path, query, headers, body, target)

    def send(self, response: Response) -> None:
        self.send_response_only(response.status)
        for key, value in response.headers:
            self.send_header(key, value)
        if response.status not in _BODILESS and not response.header("content-length"):
            self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and response.status not in _BODILESS:
            self.wfile.write(response.body)

    def read_body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            return self._read_chunks()
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit() or int(length) > MAX_BODY:
            raise BodyError(f"the request body has an invalid length: {length}")
        return self._read_exactly(int(length))

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            size_text = self.rfile.readline(1024).partition(b";")[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError as error:
                raise BodyError("a chunk of the request body has no size") from error
            if size < 0 or len(body) + size > MAX_BODY:
                raise BodyError("the request body is too long")
            if size == 0:
                break
            body += self._read_exactly(size)
            self._read_exactly(2)
        while self.rfile.readline(65_537).strip():
            pass
        return bytes(body)

    def _read_exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) != size:
            raise BodyError("the request body is incomplete")
        return data
