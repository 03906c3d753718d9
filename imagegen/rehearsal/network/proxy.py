"""An HTTP proxy on loopback. It passes HTTPS requests to the stand-ins of their hosts, tunnels WinRM to the guests,
rejects all other connections, and records everything in the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imagegen.rehearsal.network.connection import Connection
from imagegen.rehearsal.network.loopback_server import LoopbackServer

if TYPE_CHECKING:
    from imagegen.rehearsal.network.authority import Authority
    from imagegen.rehearsal.network.journal import Injections, Journal
    from imagegen.rehearsal.network.messages import Host


class Routes(Protocol):
    """The destinations of connections."""

    def find_host(self, name: str) -> Host | None:
        """Find the stand-in of an HTTPS host."""

    def find_winrm_port(self, address: str) -> int | str:
        """Find the local port of the guest with this address. Returns a reason if its WinRM port is closed."""

    def is_silent(self, address: str) -> bool:
        """Whether the guest with this address was made unreachable."""


class Proxy(LoopbackServer):
    """Leads each connection to its destination."""

    def __init__(self, routes: Routes, authority: Authority, journal: Journal, injections: Injections) -> None:
        self.routes = routes
        self.authority = authority
        self.injections = injections
        super().__init__("rehearsal-proxy", Connection, journal)
