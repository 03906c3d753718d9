"""The proxy over loopback: tunnels, TLS, refusals, injected faults, and an end without leftovers."""

from __future__ import annotations

import gc
import http.client
import select
import socket
import ssl
import struct
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.network.authority import Authority
from imagegen.rehearsal.network.messages import HANG_UP, Request, Response
from imagegen.rehearsal.network.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

_TIMEOUT_S = 10


def _echo(request: Request) -> Response:
    if request.path == "/broken":
        raise KeyError("no such thing")
    if request.path == "/gone":
        return Response(204)
    return Response.of_json(200, {"method": request.method, "query": dict(request.query), "size": len(request.body)})


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path, hosts={"echo.test": _echo}) as net:
        yield net
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rehearsal")] == []


def _port(network: Network) -> int:
    return int(network.environ["HTTPS_PROXY"].rpartition(":")[2])


def _client(network: Network) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=network.environ["SSL_CERT_FILE"])
    connection = http.client.HTTPSConnection("127.0.0.1", _port(network), timeout=_TIMEOUT_S, context=context)
    connection.set_tunnel("echo.test", 443)
    return connection


def _ask(connection: http.client.HTTPSConnection) -> int:
    connection.request("GET", "/")
    return connection.getresponse().status


def _get(network: Network, path: str) -> int:
    connection = _client(network)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


def _reset(connection: socket.socket) -> None:
    """Close it as a killed program's system does: without a word of TLS, and with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _raw(network: Network, text: str) -> str:
    with socket.create_connection(("127.0.0.1", _port(network)), _TIMEOUT_S) as connection:
        connection.sendall(text.encode())
        with connection.makefile("rb") as stream:
            return stream.readline().decode().strip()


def test_a_connection_carries_many_requests(network: Network) -> None:
    connection = _client(network)
    bodies: list[bytes] = []
    for method, body in (("GET", None), ("POST", b"x" * 100_000), ("GET", None)):
        connection.request(method, "/a?b=c", body)
        bodies.append(connection.getresponse().read())
    connection.close()
    assert bodies[1] == b'{"method": "POST", "query": {"b": "c"}, "size": 100000}'
    assert [(entry.method, entry.host, entry.path, entry.status) for entry in network.journal] == [
        ("GET", "echo.test", "/a", 200),
        ("POST", "echo.test", "/a", 200),
        ("GET", "echo.test", "/a", 200),
    ]
    assert network.faults == []


def test_a_chunked_body_is_read_whole(network: Network) -> None:
    connection = _client(network)
    connection.request("PUT", "/", iter([b"one", b"three"]), encode_chunked=True)
    assert b'"size": 8' in connection.getresponse().read()
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    connection.close()


def test_an_answer_to_head_has_a_length_and_no_body(network: Network) -> None:
    connection = _client(network)
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    assert (int(answer.headers["Content-Length"]) > 0, answer.read()) == (True, b"")
    connection.request("GET", "/gone")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Length"]) == (204, None)
    connection.close()


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ("CONNECT example.org:443 HTTP/1.1\r\n\r\n", "unexpected host example.org:443"),
        ("CONNECT echo.test:8443 HTTP/1.1\r\n\r\n", "unexpected host echo.test:8443"),
        ("CONNECT echo.test HTTP/1.1\r\n\r\n", "unexpected CONNECT echo.test"),
        ("CONNECT 192.0.2.1:5986 HTTP/1.1\r\n\r\n", "192.0.2.1:5986 is closed: no machine has this address"),
        (
            "GET http://169.254.169.254/x?sig=secret HTTP/1.1\r\n\r\n",
            "unexpected plain request GET http://169.254.169.254/x",
        ),
    ],
)
def test_a_connection_to_an_unknown_host_is_rejected_and_named(network: Network, asked: str, fault: str) -> None:
    assert _raw(network, asked).startswith("HTTP/1.1 403")
    assert network.faults == [fault]


def test_a_host_that_breaks_is_a_fault_that_names_it(network: Network) -> None:
    assert _get(network, "/broken") == 500
    assert network.faults == ["the stand-in of echo.test failed on GET /broken: KeyError('no such thing')"]


def _handshake(network: Network, context: ssl.SSLContext) -> None:
    """Try TLS inside a tunnel, and return when the proxy has closed the connection."""
    with socket.create_connection(("127.0.0.1", _port(network)), _TIMEOUT_S) as plain:
        plain.sendall(b"CONNECT echo.test:443 HTTP/1.1\r\n\r\n")
        assert plain.recv(1000).startswith(b"HTTP/1.1 200")
        secured = context.wrap_socket(plain.dup(), server_hostname="echo.test", do_handshake_on_connect=False)
        with secured as secure:
            try:
                secure.do_handshake()
            finally:
                while plain.recv(1000):
                    pass


def test_who_does_not_trust_the_authority_is_named(network: Network) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(network, ssl.create_default_context())
    [fault] = network.faults
    assert fault.startswith("the TLS handshake for echo.test failed, maybe the client does not trust the CA: ")


def test_a_client_that_leaves_before_tls_is_no_fault(network: Network) -> None:
    with socket.create_connection(("127.0.0.1", _port(network)), _TIMEOUT_S) as client:
        client.sendall(b"CONNECT echo.test:443 HTTP/1.1\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        client.shutdown(socket.SHUT_WR)
        while client.recv(1000):
            pass
    assert network.faults == []


def test_a_fault_is_injected_as_often_as_asked(network: Network) -> None:
    network.inject("echo.*", "/a*", Response(503), times=2)
    network.inject("echo.test", "/c", mutate=lambda _, answer: Response(207, answer.body))
    assert [_get(network, path) for path in ("/ab", "/c", "/b", "/a", "/a", "/c")] == [503, 207, 200, 503, 200, 200]
    assert network.untriggered_injections == 0


def test_a_connection_can_be_cut(network: Network) -> None:
    network.inject("*", response=HANG_UP)
    with pytest.raises(http.client.RemoteDisconnected):
        _get(network, "/")
    assert _get(network, "/") == 200


def test_an_injection_says_what_it_does(network: Network) -> None:
    with pytest.raises(ValueError, match="either a response or a mutate"):
        network.inject("echo.test")


def test_closing_cuts_an_idle_connection(network: Network) -> None:
    connection = _client(network)
    connection.request("GET", "/")
    connection.getresponse().read()
    network.__exit__(None, None, None)
    with pytest.raises((http.client.HTTPException, OSError)):
        _ask(connection)
    connection.close()


def test_the_tunnel_to_a_guest_is_raw(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as guest:
        monkeypatch.setattr(network, "find_winrm_port", lambda _: guest.getsockname()[1])
        with socket.create_connection(("127.0.0.1", _port(network)), _TIMEOUT_S) as client:
            client.sendall(b"CONNECT 192.0.2.1:5986 HTTP/1.1\r\n\r\n")
            stream = client.makefile("rb")
            assert stream.readline().split()[1] == b"200"
            stream.readline()
            served, _ = guest.accept()
            with served, stream:
                client.sendall(b"\x16\x03hello")
                assert served.recv(100) == b"\x16\x03hello"
                served.sendall(b"back")
                served.shutdown(socket.SHUT_WR)
                assert stream.read() == b"back"
    assert network.faults == []


def test_a_guest_that_is_down_is_no_fault(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as guest:
        port = guest.getsockname()[1]
    monkeypatch.setattr(network, "find_winrm_port", lambda _: port)
    assert _raw(network, "CONNECT 192.0.2.1:5986 HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 502")
    assert network.faults == []


def test_a_network_that_was_never_opened_leads_nowhere(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="before it is opened"):
        Network(tmp_path).child_environ({})


def test_a_client_that_resets_its_connection_before_tls_leaves_no_socket_open(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    _reset(client)
    assert select.select([accepted], [], [], _TIMEOUT_S)[0]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(ConnectionResetError):
            authority.context_for("echo.test").wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        gc.collect()
    assert [str(each.message) for each in told] == []
