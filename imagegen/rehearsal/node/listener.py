"""The HTTPS listener of a cluster: a port on loopback, one thread for each connection and one request in each."""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import socketserver
import ssl
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509

from imagegen.rehearsal.network.messages import Request, Response, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

# A client of the model machine sends its request at once.
_IDLE_S = 10.0
_POLL_S = 0.05
_MAX_BODY = 1024 * 1024


class Listener(socketserver.ThreadingTCPServer):
    """Asks clients for a certificate of the given authority, and serves those without one too."""

    request_queue_size = 64
    # `server_close` waits for the threads of the connections.
    daemon_threads = False

    def __init__(
        self,
        server_pem: bytes,
        authority: bytes,
        answer: Callable[[Request, x509.Certificate | None], Response],
        refuse: Callable[[str], None],
    ) -> None:
        self._context = _server_context(server_pem, authority)
        self.answer = answer
        self._refuse = refuse
        self._open: set[ssl.SSLSocket] = set()
        self._closing = False
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": _POLL_S}, name="rehearsal-cluster", daemon=True
        )

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening, cut every connection and wait for its thread."""
        self.shutdown()
        self._thread.join()
        with self._lock:
            self._closing = True
            connections = list(self._open)
        for connection in connections:
            # SSLSocket's own shutdown would take TLS away under a thread that reads.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self.server_close()

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # the base class's own types
        request.settimeout(_IDLE_S)
        # The handshake comes after `close` can see the connection.
        with self._context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as tls:
            with self._lock:
                self._open.add(tls)
            try:
                if not self._closing and self._shake_hands(tls):
                    super().finish_request(tls, client_address)
            except OSError:
                _log.debug("a connection ended in the middle of a request", exc_info=True)
            finally:
                with self._lock:
                    self._open.discard(tls)

    def _shake_hands(self, tls: ssl.SSLSocket) -> bool:
        try:
            tls.do_handshake()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            _log.debug("a client went away before TLS was up", exc_info=True)
        except ssl.SSLError as error:
            self._refuse(f"TLS: {error.reason or error}")
        else:
            return True
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002  # the base class's own types
        """The base class would write to standard error."""
        _log.exception("a connection to the cluster failed")
        self._refuse("a connection failed by a defect of the cluster; the log says which")


class _Connection(http.server.BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), _MAX_BODY)
        path, query = parse_target(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(
            self.command, headers.get("host", ""), path, query, headers, self.rfile.read(length), self.path
        )
        answer = self.server.answer(request, self._client_certificate())
        self.send_response(answer.status)
        for name, value in (*answer.headers, ("Content-Length", str(len(answer.body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _client_certificate(self) -> x509.Certificate | None:
        der = self.connection.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der) if der else None

    def log_message(self, format: str, *args: object) -> None:  # the base class's own name
        _log.debug(format, *args)


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
