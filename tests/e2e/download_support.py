"""A server on this machine that speaks TLS and misbehaves as told."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import http.server
import io
import ssl
import threading
from typing import TYPE_CHECKING, Any

import trustme

from imagegen.base.console import Console
from imagegen.fetch.download import Fetched, fetch
from imagegen.fetch.http import Web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(DATA).hexdigest()


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer: `cut` closes the connection after so many bytes of the body, and `drip_s` is the pause after each
    byte of the body or, with `drips_headers` and `drips_extension`, of the headers and of a chunk's extension.

    Without Content-Length, the file ends with the connection; with `says_end`, TLS says that this is the end."""

    status: int = 200
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None
    drip_s: float = 0.0
    drips_headers: bool = False
    drips_extension: bytes | None = None
    """The chunks before it."""
    says_end: bool = False


@dataclasses.dataclass
class Server:
    """Answers in turn, or always with `forever`, and remembers what was asked."""

    url: str = ""
    ca: str = ""
    answers: list[Answer] = dataclasses.field(default_factory=list)
    forever: Answer | None = None
    asked: list[tuple[str, dict[str, str]]] = dataclasses.field(default_factory=list)
    pauses: list[float] = dataclasses.field(default_factory=list)
    said: io.StringIO = dataclasses.field(default_factory=io.StringIO)
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)

    def fetch(self, into: Path, path: str = "/containerd.tar.gz", **options: Any) -> Fetched:  # noqa: ANN401 - passed on
        console, stop = Console(self.said, plain=True), options.pop("stop", None) or threading.Event()
        web = Web(environ={"SSL_CERT_FILE": self.ca}, console=console, pause=self.pauses.append, stop=stop)
        return fetch(f"{self.url}{path}", into, web, **options)

    def forget(self) -> None:
        """Be as new."""
        for part in (self.answers, self.asked, self.pauses):
            part.clear()
        self.forever = None
        self.ended.clear()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, server: Server, *args: Any) -> None:  # noqa: ANN401 - the base class's own
        self.told = server
        super().__init__(*args)

    def do_GET(self) -> None:
        self.told.asked.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
        answer = self.told.forever or self.told.answers.pop(0)
        self.close_connection = True
        if answer.drips_headers:
            self._drip(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10**6, answer.drip_s)
            return
        if answer.drips_extension is not None:
            self._drip_extension(answer.drips_extension, answer.drip_s)
            return
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(answer.body))} | answer.headers
        for key, value in headers.items():
            if value:
                self.send_header(key, value)
        self.end_headers()
        if answer.drip_s:
            self._drip(answer.body, answer.drip_s)
        else:
            self.wfile.write(answer.body[: answer.cut])
        if answer.says_end:
            # The client may have closed the connection first.
            with contextlib.suppress(OSError):
                self.connection.unwrap()

    def _drip_extension(self, chunks: bytes, pause_s: float) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"5;")
        self._drip(b"x" * 10**6, pause_s)

    def _drip(self, data: bytes, pause_s: float) -> None:
        for byte in data:
            self.wfile.write(bytes([byte]))
            if self.told.ended.wait(pause_s):
                return

    def do_CONNECT(self) -> None:
        self.told.asked.append((f"CONNECT {self.path}", {}))
        self.send_error(403)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - the base class prints here
        """Nothing on a test's output."""


class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:  # noqa: ANN401 - the base class prints here
        """A client that hangs up is what some tests are about."""


@contextlib.contextmanager
def listening_server(folder: Path) -> Iterator[Server]:
    """A server; the file of its authority is in the folder."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    ca = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    told = Server(ca=str(ca))
    server = Quiet(("127.0.0.1", 0), functools.partial(Handler, told))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    told.url = f"https://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield told
    finally:
        told.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
