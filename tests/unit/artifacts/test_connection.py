"""Addresses that no client and no resolver takes: one message before anything is asked, and never their own errors."""

from __future__ import annotations

import socket
import ssl

import pytest

from imagegen.artifacts import connection
from imagegen.errors import ConfigError
from imagegen.hosts import ANY_HOST, HostPolicy

GOOD = "https://artifacts.example.com/a"
HOSTS = ["artifacts..corp.example", f"{'a' * 64}.example", "xn--a.example", "a.example:99999", "[fd00::", ""]


def _ask(url: str, environ: dict[str, str], hosts: HostPolicy = ANY_HOST) -> str:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ConfigError) as refused, connection.get(url, {}, environ=environ, trust=trust, hosts=hosts):
        pass
    return str(refused.value)


@pytest.mark.parametrize("host", HOSTS)
def test_a_url_that_cannot_be_read(host: str) -> None:
    """A server may redirect to one."""
    assert _ask(f"https://{host}/a", {}).endswith("is not a valid URL")


@pytest.mark.parametrize("host", HOSTS)
def test_a_proxy_that_cannot_be_read(host: str) -> None:
    said = _ask(GOOD, {"HTTPS_PROXY": f"http://user:secret@{host}"})
    assert said == "the proxy in HTTPS_PROXY or ALL_PROXY is not a valid URL"


@pytest.mark.parametrize(
    ("url", "hosts", "says"),
    [
        (GOOD, HostPolicy.of(["b.example"], []), "artifacts.example.com is not one of artifacts.allowed_hosts"),
        (GOOD, HostPolicy.of([], ["artifacts.example.com"]), "artifacts.example.com is one of artifacts.denied_hosts"),
        ("https://u:p@A.example:443/a", HostPolicy.of([], ["a.example"]), "a.example is one of artifacts.denied_hosts"),
        (
            "https://b\u00fccher.example/a",
            HostPolicy.of([], ["xn--bcher-kva.example"]),
            "xn--bcher-kva.example is one of",
        ),
    ],
)
def test_a_host_that_must_not_be_asked(url: str, hosts: HostPolicy, says: str) -> None:
    assert _ask(url, {}, hosts).startswith(says)


def _unresolved(code: int, monkeypatch: pytest.MonkeyPatch) -> type[connection.TransportError]:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(code, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(connection.TransportError) as failed, connection.get(GOOD, {}, environ={}, trust=trust):
        pass
    return type(failed.value)


def test_a_name_that_does_not_exist_is_told_from_a_resolver_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second may have another answer later."""
    assert _unresolved(socket.EAI_NONAME, monkeypatch) is connection.UnknownHostError
    assert _unresolved(socket.EAI_AGAIN, monkeypatch) is connection.TransportError
