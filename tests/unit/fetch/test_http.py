"""Addresses that no client and no resolver takes: one message before anything is asked, and never their own errors."""

from __future__ import annotations

import functools
import socket
import ssl
import types

import httpx
import pytest

from imagegen.base.errors import ConfigError
from imagegen.base.hosts import ANY_HOST, HostPolicy
from imagegen.fetch import http

GOOD = "https://artifacts.example.com/a"
HOSTS = ["artifacts..corp.example", f"{'a' * 64}.example", "xn--a.example", "a.example:99999", "[fd00::", ""]


def _ask(url: str, environ: dict[str, str], hosts: HostPolicy = ANY_HOST) -> str:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ConfigError) as refused, http.Web(environ=environ, hosts=hosts).get(url, {}, trust=trust):
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


def _unresolved(code: int, monkeypatch: pytest.MonkeyPatch) -> type[http.TransportError]:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(code, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(http.TransportError) as failed, http.Web(environ={}).get(GOOD, {}, trust=trust):
        pass
    return type(failed.value)


def test_a_name_that_does_not_exist_is_told_from_a_resolver_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second may have another answer later."""
    assert _unresolved(socket.EAI_NONAME, monkeypatch) is http.UnknownHostError
    assert _unresolved(socket.EAI_AGAIN, monkeypatch) is http.TransportError


CLIENT = httpx.Client


def test_all_redirects_together_have_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of servers, each of which sends its headers just in time."""
    now, asked = [0.0], list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        now[0] += http.HEADERS_TIMEOUT_S / 2 + 1
        return httpx.Response(302, headers={"Location": f"https://next.example/{len(asked)}"})

    client = functools.partial(CLIENT, transport=httpx.MockTransport(answer))
    monkeypatch.setattr(httpx, "Client", lambda **_: client(trust_env=False))
    monkeypatch.setattr(http, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with (
        pytest.raises(http.LastingError, match=r"^no response within 60 s$"),
        http.Web(environ={}).get(GOOD, {}, trust=trust),
    ):
        pass
    assert len(asked) == 2


def _explained(error: httpx.RequestError, proxy: str | None, *, is_connected: bool) -> tuple[str, str, str]:
    route = http._Route(proxy, {}, is_connected)
    found = route.explain(error, str(error))
    return type(found).__name__, str(found), found.hint


@pytest.mark.parametrize(
    ("error", "is_connected", "kind", "says"),
    [
        (
            httpx.ProxyError("407 No"),
            True,
            "LastingError",
            "the proxy http://p.example:3128 refuses the connection: 407 No",
        ),
        (
            httpx.ProxyError("503 No"),
            True,
            "TransportError",
            "the proxy http://p.example:3128 refuses the connection: 503 No",
        ),
        (
            httpx.ConnectError("refused"),
            False,
            "TransportError",
            "the proxy http://p.example:3128 cannot be reached: refused",
        ),
        (httpx.ReadError("reset"), True, "TransportError", "reset (through the proxy http://p.example:3128)"),
    ],
)
def test_a_proxy_that_fails_is_named_without_its_password(
    error: httpx.RequestError, is_connected: bool, kind: str, says: str
) -> None:
    found = _explained(error, "http://user:secret@p.example:3128", is_connected=is_connected)
    assert found[:2] == (kind, says)
    assert ("HTTPS_PROXY" in found[2]) == ("through" not in says)


def test_an_untrusted_certificate_says_how_to_trust_it_and_who_replaced_all_others() -> None:
    error = httpx.ConnectError("CERTIFICATE_VERIFY_FAILED")
    hint = http._Route(None, {}).explain(error, str(error)).hint
    assert "write the file with its root into artifacts.ca, or add the root to the certificates of this system" in hint
    hint = http._Route(None, {"SSL_CERT_FILE": "/x.pem"}).explain(error, str(error)).hint
    assert hint.startswith("SSL_CERT_FILE replaces all public authorities by those in its file: unset it, and ")
