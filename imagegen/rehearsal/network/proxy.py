"""An HTTP proxy on loopback: ends TLS for the hosts that are played, tunnels WinRM to the guest, refuses the rest.

Comes in: CONNECT requests of the tools under test. Goes out: requests to `Routes`, and everything seen to the journal.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Protocol, cast

from imagegen.rehearsal.network.connection import Connection

if TYPE_CHECKING:
    from imagegen.rehearsal.network.authority import Authority
    from imagegen.rehearsal.network.journal import Injections, Journal
    from imagegen.rehearsal.network.messages import Host

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
# Far more than what is under way takes, also on a machine that has other work; who ends earlier is not waited for.
JOIN_S = 30.0
_POLL_S = 0.05


class Routes(Protocol):
    """Who plays what."""

    def host(self, name: str) -> Host | None:
        """Who plays the HTTPS host of that name."""

    def winrm(self, address: str) -> int | str:
        """The local port of the guest with this address, or why nothing answers there."""

    def is_silent(self, address: str) -> bool:
        """Whether the guest with this address answers no more."""


class Proxy(socketserver.TCPServer):
    """One thread per connection; `close` ends them all."""

    request_queue_size = 64

    def __init__(self, routes: Routes, authority: Authority, journal: Journal, injections: Injections) -> None:
        self.routes = routes
        self.authority = authority
        self.journal = journal
        self.injections = injections
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = False
        super().__init__(("127.0.0.1", 0), Connection)
        self._listener = threading.Thread(target=self._listen, name="rehearsal-proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        """Accept connections in a thread of its own."""
        self._listener.start()

    def _listen(self) -> None:
        self.serve_forever(poll_interval=_POLL_S)

    def close(self) -> None:
        """Stop listening, cut every connection and wait for its thread; one that stays is a fault."""
        with self._lock:
            self._closing = True
        self.shutdown()
        self._listener.join(JOIN_S)
        self.server_close()
        with self._lock:
            sockets, threads = list(self._sockets), list(self._threads)
        for each in sockets:
            _cut(each)
        for thread in threads:
            thread.join(JOIN_S)
            if thread.is_alive():
                self.journal.fault("a connection's thread did not end with the network")

    def track(self, connection: socket.socket) -> None:
        """Remember a socket, so that `close` can wake whoever waits on it."""
        with self._lock:
            self._sockets.add(connection)
            closing = self._closing
        if closing:
            _cut(connection)

    def untrack(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: tuple[str, int]
    ) -> None:
        connection = cast("socket.socket", request)
        thread = threading.Thread(
            target=self._serve, args=(connection, client_address), name="rehearsal-connection", daemon=True
        )
        with self._lock:
            full = len(self._threads) >= MAX_CONNECTIONS
            if not full:
                self._threads.add(thread)
        if full:
            self.journal.fault(f"more than {MAX_CONNECTIONS} connections at a time")
            self.shutdown_request(connection)
            return
        self.track(connection)
        thread.start()

    def _serve(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:
            # A client may leave at any time: that ends its connection and is no fault of the network's.
            _log.debug("connection ended: %s", error)
        finally:
            self.untrack(request)
            self.shutdown_request(request)
            with self._lock:
                self._threads.discard(threading.current_thread())


def _cut(connection: socket.socket) -> None:
    # Whoever closed it first has already done what is wanted here.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
