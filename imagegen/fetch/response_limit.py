"""Ends HTTPS responses that are late or no longer wanted, by ending their connections.

The timeout of a read ends no response that always sends something: a byte of a header, or of a chunk's extension.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Final

_CHECK_S: Final = 0.2


class ResponseLimit:
    """What a response must do next, and until when. It starts without a limit."""

    def __init__(self, stop: threading.Event | None) -> None:
        self.broken = ""
        """Why the response was ended; empty if it was not."""
        self._stop = stop
        self._sockets: list[socket.socket] = []
        self._limit: tuple[float, str] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ResponseLimit:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def add(self, connected: socket.socket) -> None:
        """A connection of the response. TLS takes it over, in a socket of its own."""
        if isinstance(connected, ssl.SSLSocket):
            # Python takes a TLS connection that was cut for one that ended: half a file would look complete.
            connected.suppress_ragged_eofs = False  # type: ignore[attr-defined]  # typeshed has only the argument
        self._sockets.append(connected)
        if self.broken:
            _end(connected)

    def set(self, within_s: float, reason: str) -> None:
        """From now on so much time; `reason` says what did not happen, if it is over."""
        self._limit = time.monotonic() + within_s, reason

    def suspend(self) -> None:
        """Time does not count while the response waits for its reader."""
        self._limit = None

    def _watch(self) -> None:
        while not self._over.wait(_CHECK_S):
            limit = self._limit
            if self._stop is not None and self._stop.is_set():
                self.broken = "cancelled"
            elif limit is not None and time.monotonic() > limit[0]:
                self.broken = limit[1]
            if self.broken:
                for one in [*self._sockets]:
                    _end(one)
                return


def _end(connected: socket.socket) -> None:
    # It may be closed already. This ends a read that waits, which closing the socket would not.
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
