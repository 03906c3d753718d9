"""One connection to the proxy: the CONNECT, the TLS that ends here, and the requests inside it, one after another."""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import ssl
from typing import TYPE_CHECKING, ClassVar, cast

from imagegen.rehearsal.network.journal import Entry
from imagegen.rehearsal.network.machine import WINRM_PORT
from imagegen.rehearsal.network.messages import Host, Request, Response, parse_target
from imagegen.rehearsal.network.tunnel import pump

if TYPE_CHECKING:
    from imagegen.rehearsal.network.proxy import Proxy

_log = logging.getLogger(__name__)

HTTPS_PORT = 443
IDLE_S = 900.0
CONNECT_S = 10.0
MAX_BODY = 256 * 1024 * 1024
_BODILESS = (204, 304)
_NO_ANSWER = Response.of_text(502, "the machine does not answer")


class BodyError(Exception):
    """A request body that cannot be read as HTTP says."""


class Connection(http.server.BaseHTTPRequestHandler):
    """http.server reads the requests; after a CONNECT they come out of the TLS that was ended here."""

    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float | None] = IDLE_S

    def setup(self) -> None:
        super().setup()
        self._proxy = cast("Proxy", self.server)
        self._name = ""
        self._host: Host | None = None
        self._secure: ssl.SSLSocket | None = None

    def finish(self) -> None:
        # The client may be gone already; what was still to be written then has no reader.
        with contextlib.suppress(OSError):
            super().finish()
        if self._secure is not None:
            self._proxy.untrack(self._secure)
            self._secure.close()

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)

    def do_CONNECT(self) -> None:
        name, _, port_text = self.path.rpartition(":")
        if self._name or not port_text.isdigit():
            return self._refuse(f"unexpected CONNECT {self.path}")
        name, port = name.strip("[]").lower(), int(port_text)
        if port == WINRM_PORT:
            return self._to_guest(name)
        host = self._proxy.routes.host(name)
        if host is None or port != HTTPS_PORT:
            return self._refuse(f"unexpected host {name}:{port}")
        return self._end_tls(name, host)

    def do_GET(self) -> None:
        host = self._host
        if host is None:
            # The query may hold a signature: it is not repeated.
            return self._refuse(f"unexpected plain request {self.command} {self.path.partition('?')[0]}")
        try:
            body = self._read_body()
        except BodyError as error:
            self.close_connection = True
            return self._send(Response.of_text(400, str(error)))
        path, query = parse_target(self.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        return self._exchange(host, Request(self.command, self._name, path, query, headers, body, self.path))

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def _exchange(self, host: Host, request: Request) -> None:
        response = self._proxy.injections.exchange(request, lambda: self._answer(host, request))
        entry = Entry(request.method, request.host, request.path, response.status, response.note)
        self._proxy.journal.record(entry)
        if response.fault:
            self._proxy.journal.fault(response.fault)
        if response.status:
            self._send(response)
        else:
            self.close_connection = True

    def _answer(self, host: Host, request: Request) -> Response:
        try:
            return host(request)
        except Exception as error:  # a stand-in that breaks must fail the rehearsal by name, not hang the client
            _log.exception("the host %s failed", request.host)
            fault = f"{request.host} broke on {request.method} {request.path}: {error!r}"
            return Response(500, fault.encode(), fault=fault)

    def _end_tls(self, name: str, host: Host) -> None:
        self._begin_tunnel()
        try:
            context = self._proxy.authority.context_for(name)
        except OSError as error:
            # A certificate reaches OpenSSL through a temporary file. The client only sees that its connection ends.
            self._proxy.journal.fault(
                f"no certificate for {name} can be written: {error.strerror}; free some space in the folder for "
                "temporary files (TMPDIR), or raise `ulimit -f`"
            )
            self.close_connection = True
            return
        plain = cast("socket.socket", self.connection)
        self._secure = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self._proxy.track(self._secure)
        self._secure.settimeout(IDLE_S)
        try:
            self._secure.do_handshake()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            # The client left, for reasons of its own.
            self.close_connection = True
            return
        except ssl.SSLError as error:
            self._proxy.journal.fault(f"TLS with {name} failed, is the CA trusted there? {error.reason or error}")
            self.close_connection = True
            return
        self._name, self._host = name, host
        self.rfile.close()
        self.connection = self._secure
        self.rfile = self._secure.makefile("rb")
        self.wfile = self._secure.makefile("wb")

    def _to_guest(self, address: str) -> None:
        if self._proxy.routes.is_silent(address):
            return self._send(_NO_ANSWER)
        port = self._proxy.routes.winrm(address)
        if isinstance(port, str):
            return self._refuse(f"{address}:{WINRM_PORT} is shut: {port}")
        try:
            guest = socket.create_connection(("127.0.0.1", port), CONNECT_S)
        except OSError as error:
            # A guest that restarts does not listen for a while; the client tries again, as with a real machine.
            self._proxy.journal.record(Entry("CONNECT", address, f":{WINRM_PORT}", 502, str(error)))
            return self._send(_NO_ANSWER)
        self._proxy.track(guest)
        with guest:
            self._begin_tunnel()
            self._proxy.journal.record(Entry("CONNECT", address, f":{WINRM_PORT}", 200))
            self.close_connection = True
            try:
                pump(cast("socket.socket", self.connection), guest, idle_s=IDLE_S)
            finally:
                self._proxy.untrack(guest)
        return None

    def _begin_tunnel(self) -> None:
        self.send_response_only(200, "Connection established")
        self.end_headers()
        # Python's own client asks for its tunnels in HTTP/1.0; what flows inside is another conversation.
        self.close_connection = False

    def _refuse(self, fault: str) -> None:
        self._proxy.journal.fault(fault)
        self._proxy.journal.record(Entry(self.command, self._name, self.path.partition("?")[0], 403))
        self.close_connection = True
        self._send(Response.of_text(403, f"the rehearsal's network refuses: {fault}\n"))

    def _send(self, response: Response) -> None:
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

    def _read_body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            return self._read_chunks()
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit() or int(length) > MAX_BODY:
            raise BodyError(f"a body of length {length}")
        return self._read_exactly(int(length))

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            size_text = self.rfile.readline(1024).partition(b";")[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError as error:
                raise BodyError("a chunk without a size") from error
            if size < 0 or len(body) + size > MAX_BODY:
                raise BodyError("a body too long")
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
            raise BodyError("a body cut short")
        return data
