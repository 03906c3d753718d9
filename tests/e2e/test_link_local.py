"""The addresses of a booting machine's cloud over loopback: requests, unknown hosts, and an end without threads."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.link_local import LinkLocal
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

_TIMEOUT_S = 10.0


def _echo(request: Request) -> Response:
    if request.path == "/broken":
        raise KeyError("no such thing")
    known = {"method": request.method, "path": request.path, "query": dict(request.query), "size": len(request.body)}
    return Response.of_json(200, known)


@pytest.fixture
def served() -> Iterator[LinkLocal]:
    with LinkLocal({"192.0.2.1": _echo, "192.0.2.2": lambda _: Response(204, note="empty")}) as link:
        yield link
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("link", "rehearsal"))] == []


def _port(served: LinkLocal) -> int:
    return int(served.url.rpartition(":")[2])


def _ask(connection: http.client.HTTPConnection, url: str, method: str = "GET", body: bytes | None = None) -> str:
    connection.request(method, url, body)
    answer = connection.getresponse()
    return f"{answer.status} {answer.read().decode()}".strip()


def _seen(served: LinkLocal) -> list[tuple[str, str, str, int]]:
    return [(entry.method, entry.host, entry.path, entry.status) for entry in served.journal.entries]


def _send(served: LinkLocal, text: str) -> str:
    """Send these bytes and no more. Returns all that comes back."""
    with socket.create_connection(("127.0.0.1", _port(served)), _TIMEOUT_S) as client:
        client.sendall(text.encode())
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            return stream.read().decode()


def test_one_connection_asks_several_hosts(served: LinkLocal) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", _port(served), timeout=_TIMEOUT_S)
    answers = [
        _ask(connection, "http://192.0.2.1/a/b?c=d"),
        _ask(connection, "http://192.0.2.1:80/a", "POST", b"12345"),
        _ask(connection, "http://192.0.2.2"),
        _ask(connection, "http://192.0.2.1//x"),
    ]
    connection.close()
    assert answers == [
        '200 {"method": "GET", "path": "/a/b", "query": {"c": "d"}, "size": 0}',
        '200 {"method": "POST", "path": "/a", "query": {}, "size": 5}',
        "204",
        '200 {"method": "GET", "path": "//x", "query": {}, "size": 0}',
    ]
    assert _seen(served) == [
        ("GET", "192.0.2.1", "/a/b", 200),
        ("POST", "192.0.2.1", "/a", 200),
        ("GET", "192.0.2.2", "/", 204),
        ("GET", "192.0.2.1", "//x", 200),
    ]
    assert (served.unknown, served.journal.faults) == ([], [])


@pytest.mark.parametrize(
    ("request_line", "host"),
    [
        ("GET http://192.0.2.9/x?secret=1 HTTP/1.1", "192.0.2.9"),
        ("GET http://192.0.2.1:8080/x HTTP/1.1", "192.0.2.1:8080"),
        ("CONNECT 192.0.2.1:443 HTTP/1.1", "192.0.2.1:443"),
    ],
)
def test_nobody_has_an_unknown_address(served: LinkLocal, request_line: str, host: str) -> None:
    assert _send(served, f"{request_line}\r\n\r\n").startswith("HTTP/1.1 502")
    assert [entry.host for entry in served.unknown] == [host]
    assert [fault.partition("/")[0] for fault in served.faults] == [f"the rehearsal does not know {host}"]
    assert not any("secret" in entry.path for entry in served.unknown)


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /latest HTTP/1.1",
        "GET https://192.0.2.1/ HTTP/1.1",
        "GET http://192.0.2.1:x/ HTTP/1.1",
        "GET http:/// HTTP/1.1",
    ],
)
def test_a_request_without_a_host_is_refused(served: LinkLocal, request_line: str) -> None:
    assert _send(served, f"{request_line}\r\nHost: 192.0.2.1\r\n\r\n").startswith("HTTP/1.1 400")
    assert [entry.status for entry in served.journal.entries] == [400]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", []),
        ("GET http://192", []),
        ("GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192", [200]),
        ("POST http://192.0.2.1/ HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf", [400]),
        ("POST http://192.0.2.1/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", [400]),
        ("POST http://192.0.2.1/ HTTP/1.1\r\nContent-Length: many\r\n\r\n", [400]),
    ],
)
def test_half_a_request_harms_nobody(served: LinkLocal, text: str, seen: list[int]) -> None:
    _send(served, text)
    assert [entry.status for entry in served.journal.entries] == seen
    assert _send(served, "GET http://192.0.2.1/ HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 200")
    assert served.journal.faults == []


def test_a_host_that_breaks_is_named(served: LinkLocal) -> None:
    assert _send(served, "GET http://192.0.2.1/broken HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 500")
    assert served.journal.faults == ["the stand-in of 192.0.2.1 failed on GET /broken: KeyError('no such thing')"]


def test_the_faults_are_complete_when_the_proxy_has_ended() -> None:
    entered, may_end = threading.Event(), threading.Event()

    def fail(_: Request) -> Response:
        entered.set()
        may_end.wait(_TIMEOUT_S)
        raise KeyError("no such thing")

    with LinkLocal({"192.0.2.1": fail}) as link:
        client = http.client.HTTPConnection("127.0.0.1", _port(link), timeout=_TIMEOUT_S)
        client.request("GET", "http://192.0.2.1/")
        assert entered.wait(_TIMEOUT_S)
        assert link.faults == []
        threading.Timer(0.2, may_end.set).start()
    client.close()
    assert link.faults == ["the stand-in of 192.0.2.1 failed on GET /: KeyError('no such thing')"]


def test_closing_does_not_wait_for_a_client_that_says_nothing() -> None:
    began = time.monotonic()
    with LinkLocal({"192.0.2.1": _echo}) as link:
        client = http.client.HTTPConnection("127.0.0.1", _port(link), timeout=_TIMEOUT_S)
        assert _ask(client, "http://192.0.2.1/").startswith("200")
        client.sock.sendall(b"GET http://192.0.2.1/ HT")
    # What the server had not read yet makes the end of the connection a reset.
    with contextlib.suppress(ConnectionResetError):
        assert client.sock.recv(100) == b""
    client.close()
    assert time.monotonic() - began < _TIMEOUT_S
