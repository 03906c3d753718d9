"""The addresses that only a booting machine of a cloud reaches, such as its metadata, as an HTTP proxy on loopback.

The machine's programs use it as their `http_proxy`, so that they ask for the cloud's own addresses with plain HTTP.
"""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Self, cast

from imagegen.rehearsal.network.http_connection import BodyError, HttpConnection, answer_request
from imagegen.rehearsal.network.journal import Entry, Journal
from imagegen.rehearsal.network.loopback_server import LoopbackServer
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.network.messages import Host

HTTP_PORT = 80
UNKNOWN = "unknown host"


class LinkLocal(LoopbackServer):
    """Serves the hosts of a cloud to one machine. A context manager that leaves no thread and no connection."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self.hosts = hosts
        super().__init__("link-local", _Connection, Journal())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    @property
    def faults(self) -> list[str]:
        """What proves nothing about the machine, as sentences. The list is complete when the proxy has ended."""
        unknown = (f"the rehearsal does not know {entry.host}{entry.path}" for entry in self.unknown)
        return [*self.journal.faults, *dict.fromkeys(unknown)]

    @property
    def unknown(self) -> list[Entry]:
        """The requests to hosts that the cloud does not have."""
        return [entry for entry in self.journal.entries if entry.note == UNKNOWN]


class _Connection(HttpConnection):
    """One connection of the machine's programs, which can ask several hosts one after the other."""

    def setup(self) -> None:
        super().setup()
        self._served = cast("LinkLocal", self.server)

    def do_GET(self) -> None:
        if self.request_version == "HTTP/0.9":
            # Half a request line looks like a request of the time before versions.
            self.close_connection = True
            return
        address, target = _split_target(self.path)
        self._exchange(address, target.partition("?")[0], lambda: self._answer(address, target))

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def do_CONNECT(self) -> None:
        """A tunnel: none of the cloud's addresses speaks TLS."""
        self.close_connection = True
        self._exchange(self.path, "", lambda: _no_connection(self.path))

    def _answer(self, address: str, target: str) -> Response:
        if not address:
            self.close_connection = True
            return Response.of_text(400, "this is a proxy: the request has no absolute URL\n")
        try:
            body = self.read_body()
        except BodyError as error:
            self.close_connection = True
            return Response.of_text(400, f"{error}\n")
        host = self._served.hosts.get(address)
        return answer_request(host, self.make_request(address, target, body)) if host else _no_connection(address)

    def _exchange(self, address: str, path: str, answer: Callable[[], Response]) -> None:
        response = answer()
        # Before the client has the answer: whoever waits for the client then finds the request recorded.
        self._served.journal.record(Entry(self.command, address, path, response.status, response.note))
        if response.fault:
            self._served.journal.add_fault(response.fault)
        self.send(response)


def _split_target(target: str) -> tuple[str, str]:
    """The host of an absolute URL, with its port if that is not 80, and the rest of the URL. No host is ""."""
    try:
        parts = urllib.parse.urlsplit(target)
        port = parts.port
    except ValueError:
        return "", target
    if parts.scheme.lower() != "http" or not parts.hostname:
        return "", target
    name = parts.hostname if port in (None, HTTP_PORT) else f"{parts.hostname}:{port}"
    return name, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _no_connection(address: str) -> Response:
    return Response(502, f"no connection to {address}: nobody has this address\n".encode(), note=UNKNOWN)
