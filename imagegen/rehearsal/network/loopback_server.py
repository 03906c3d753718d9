"""A server on loopback with a thread for each connection. Closing it ends every connection and every thread."""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from imagegen.rehearsal.network.http_connection import HttpConnection
    from imagegen.rehearsal.network.journal import Journal

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
# Much longer than any open request takes, even on a busy machine.
JOIN_S = 30.0
_POLL_S = 0.05


class LoopbackServer(socketserver.TCPServer):
    """Handles each connection in a thread of its own. `close` ends all threads."""

    request_queue_size = 64

    def __init__(self, name: str, handler: type[HttpConnection], journal: Journal) -> None:
        self.journal = journal
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = False
        super().__init__(("127.0.0.1", 0), handler)
        self._listener = threading.Thread(target=self._listen, name=name, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        """Accept connections in a thread of its own."""
        self._listener.start()

    def _listen(self) -> None:
        self.serve_forever(poll_interval=_POLL_S)

    def close(self) -> None:
        """Stop listening, close every connection and wait for its thread. A thread that does not end is a fault."""
        with self._lock:
            self._closing = True
        self.shutdown()
        self._listener.join(JOIN_S)
        self.server_close()
        with self._lock:
            sockets, threads = list(self._sockets), list(self._threads)
        for connection in sockets:
            _shut_down(connection)
        for thread in threads:
            thread.join(JOIN_S)
            if thread.is_alive():
                self.journal.add_fault("the thread of a connection did not end when the network was closed")

    def track(self, connection: socket.socket) -> None:
        """Remember a socket, so that `close` can wake the thread that waits for it."""
        with self._lock:
            self._sockets.add(connection)
            closing = self._closing
        if closing:
            _shut_down(connection)

    def untrack(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: tuple[str, int]
    ) -> None:
        connection = cast("socket.socket", request)
        # Clients send head and body apart. Otherwise each of their requests would wait for a delayed acknowledgement.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(
            target=self._serve, args=(connection, client_address), name="rehearsal-connection", daemon=True
        )
        with self._lock:
            full = len(self._threads) >= MAX_CONNECTIONS
            if not full:
                self._threads.add(thread)
        if full:
            self.journal.add_fault(f"there are more than {MAX_CONNECTIONS} connections at a time")
            self.shutdown_request(connection)
            return
        self.track(connection)
        thread.start()

    def _serve(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:
            # A client can close its connection at any time. This is not a fault.
            _log.debug("connection ended: %s", error)
        finally:
            self.untrack(request)
            self.shutdown_request(request)
            with self._lock:
                self._threads.discard(threading.current_thread())


def _shut_down(connection: socket.socket) -> None:
    # The connection may be closed already.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
