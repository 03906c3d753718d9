"""Copies bytes between two connected sockets until both are closed, or no data arrived for too long."""

from __future__ import annotations

import selectors
import socket
from typing import cast

CHUNK = 65_536


def pump(left: socket.socket, right: socket.socket, *, idle_s: float) -> None:
    """Copy bytes in both directions. If one side is half-closed, the other is half-closed too."""
    peers = {left: right, right: left}
    with selectors.DefaultSelector() as selector:
        for side in peers:
            side.settimeout(idle_s)
            selector.register(side, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(idle_s)
            if not ready:
                return
            for key, _ in ready:
                side = cast("socket.socket", key.fileobj)
                chunk = side.recv(CHUNK)
                if chunk:
                    peers[side].sendall(chunk)
                    continue
                selector.unregister(side)
                peers[side].shutdown(socket.SHUT_WR)
