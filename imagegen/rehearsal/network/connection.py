"""One connection to the proxy: it handles the CONNECT request, terminates TLS, and answers the requests inside it."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, cast

from imagegen.rehearsal.network.http_connection import IDLE_S, BodyError, HttpConnection, answer_request
from imagegen.rehearsal.network.journal import Entry
from imagegen.rehearsal.network.machine import WINRM_PORT
from imagegen.rehearsal.network.messages import Host, Request, Response
from imagegen.rehearsal.network.tunnel import pump

if TYPE_CHECKING:
    from imagegen.rehearsal.network.proxy import Proxy

HTTPS_PORT = 443
CONNECT_S = 10.0
_NO_ANSWER = Response.of_text(502, "the machine does not answer")


class Connection(HttpConnection):
    """Handles one connection. http.server reads the requests, after a CONNECT request from inside the TLS tunnel."""

    def setup(self) -> None:
        super().setup()
        self._proxy = cast("Proxy", self.server)
        self._name = ""
        self._host: Host | None = None
        self._secure: ssl.SSLSocket | None = None

    def finish(self) -> None:
        super().finish()
        if self._secure is not None:
            self._proxy.untrack(self._secure)
            self._secure.close()

    def do_CONNECT(self) -> None:
        name, _, port_text = self.path.rpartition(":")
        if self._name or not port_text.isdigit():
            return self._reject(f"unexpected CONNECT {self.path}")
        name, port = name.strip("[]").lower(), int(port_text)
        if port == WINRM_PORT:
            return self._tunnel_to_guest(name)
        host = self._proxy.routes.find_host(name)
        if host is None or port != HTTPS_PORT:
            return self._reject(f"unexpected host {name}:{port}")
        return self._accept_tls(name, host)

    def do_GET(self) -> None:
        host = self._host
        if host is None:
            # Without the query, which can contain a signature.
            return self._reject(f"unexpected plain request {self.command} {self.path.partition('?')[0]}")
        try:
            body = self.read_body()
        except BodyError as error:
            self.close_connection = True
            return self.send(Response.of_text(400, str(error)))
        return self._exchange(host, self.make_request(self._name, self.path, body))

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def _exchange(self, host: Host, request: Request) -> None:
        response = self._proxy.injections.exchange(request, lambda: answer_request(host, request))
        entry = Entry(request.method, request.host, request.path, response.status, response.note)
        self._proxy.journal.record(entry)
        if response.fault:
            self._proxy.journal.add_fault(response.fault)
        if response.status:
            self.send(response)
        else:
            self.close_connection = True

    def _accept_tls(self, name: str, host: Host) -> None:
        self._begin_tunnel()
        try:
            context = self._proxy.authority.context_for(name)
        except OSError as error:
            # OpenSSL reads certificates from a temporary file. The client only sees that its connection ends.
            self._proxy.journal.add_fault(
                f"the certificate of {name} could not be written: {error.strerror}; free some space in the folder of "
                "temporary files (TMPDIR), or increase `ulimit -f`"
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
            # The client closed the connection.
            self.close_connection = True
            return
        except ssl.SSLError as error:
            self._proxy.journal.add_fault(
                f"the TLS handshake for {name} failed, maybe the client does not trust the CA: {error.reason or error}"
            )
            self.close_connection = True
            return
        self._name, self._host = name, host
        self.rfile.close()
        self.connection = self._secure
        self.rfile = self._secure.makefile("rb")
        self.wfile = self._secure.makefile("wb")

    def _tunnel_to_guest(self, address: str) -> None:
        if self._proxy.routes.is_silent(address):
            return self.send(_NO_ANSWER)
        port = self._proxy.routes.find_winrm_port(address)
        if isinstance(port, str):
            return self._reject(f"{address}:{WINRM_PORT} is closed: {port}")
        try:
            guest = socket.create_connection(("127.0.0.1", port), CONNECT_S)
        except OSError as error:
            # A guest does not listen during a restart. The client retries, as with a real machine.
            self._proxy.journal.record(Entry("CONNECT", address, f":{WINRM_PORT}", 502, str(error)))
            return self.send(_NO_ANSWER)
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
        # Python's own client sends CONNECT as HTTP/1.0, which must not close the connection.
        self.close_connection = False

    def _reject(self, fault: str) -> None:
        self._proxy.journal.add_fault(fault)
        self._proxy.journal.record(Entry(self.command, self._name, self.path.partition("?")[0], 403))
        self.close_connection = True
        self.send(Response.of_text(403, f"the network of the rehearsal rejects this request: {fault}\n"))
