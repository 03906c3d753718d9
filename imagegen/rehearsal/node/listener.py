"""The HTTPS listener of a cluster: TLS on the loopback server of the rehearsal's network, with its limits."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from cryptography import x509

from imagegen.rehearsal.network.http_connection import BodyError, HttpConnection
from imagegen.rehearsal.network.loopback_server import LoopbackServer
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from imagegen.rehearsal.network.journal import Journal
    from imagegen.rehearsal.network.messages import Request

# A client of the model machine sends its request at once.
_IDLE_S = 10.0


class Listener(LoopbackServer):
    """Asks clients for a certificate of the given authority, and serves those without one too."""

    def __init__(
        self,
        server_pem: bytes,
        authority: bytes,
        answer: Callable[[Request, x509.Certificate | None], Response],
        journal: Journal,
    ) -> None:
        self._context = _server_context(server_pem, authority)
        self.answer = answer
        super().__init__("rehearsal-cluster", _Connection, journal)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def finish_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: tuple[str, int]
    ) -> None:
        plain = cast("socket.socket", request)
        plain.settimeout(_IDLE_S)
        # TLS takes over its socket. `close` shuts down the other one, which does not disturb a thread that reads TLS.
        with self._context.wrap_socket(plain.dup(), server_side=True, do_handshake_on_connect=False) as tls:
            if self._shake_hands(tls):
                super().finish_request(tls, client_address)

    def _shake_hands(self, tls: ssl.SSLSocket) -> bool:
        try:
            tls.do_handshake()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return False  # the client closed the connection
        except ssl.SSLError as error:
            self.journal.add_fault(f"the TLS handshake with the cluster's API server failed: {error.reason or error}")
            return False
        return True


class _Connection(HttpConnection):
    """One connection of a program of the model machine."""

    timeout: ClassVar[float | None] = _IDLE_S

    def do_GET(self) -> None:
        if self.request_version == "HTTP/0.9":
            # Half a request line looks like a request of the time before versions.
            self.close_connection = True
            return
        self.send(self._answer())

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def _answer(self) -> Response:
        try:
            body = self.read_body()
        except BodyError as error:
            self.close_connection = True
            return Response.of_text(400, f"{error}\n")
        request = self.make_request(self.headers.get("Host", ""), self.path, body)
        return cast("Listener", self.server).answer(request, self._client_certificate())

    def _client_certificate(self) -> x509.Certificate | None:
        der = cast("ssl.SSLSocket", self.connection).getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der) if der else None


def _server_context(server_pem: bytes, authority: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authority.decode())
    # CPython loads a key only from a file.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "server.pem")
        file.touch(mode=0o600)
        file.write_bytes(server_pem)
        context.load_cert_chain(file)
    return context
