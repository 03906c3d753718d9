"""Requests to registries: what is tried again, what is too large, and where a token goes."""

from __future__ import annotations

import functools
import io
import socket

import httpx
import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.hosts import ANY_HOST, HostPolicy
from imagegen.fetch import http
from imagegen.fetch.http import ASK_PAUSES_S, LIMIT_BYTES, Web

CLIENT = httpx.Client
URL = "https://registry.example.com/v2/a/manifests/1"


class Registry:
    """Answers without a network, and remembers requests and pauses."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *answers: httpx.Response | Exception, hosts: HostPolicy = ANY_HOST
    ) -> None:
        self.answers = [*answers]
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        client = functools.partial(CLIENT, transport=httpx.MockTransport(self._answer))
        make = lambda **given: client(trust_env=given["trust_env"])  # noqa: E731 - as short as the call it replaces
        monkeypatch.setattr(httpx, "Client", make)
        console = Console(io.StringIO(), plain=True)
        self.ask = Web(environ={}, console=console, pause=self.pauses.append, hosts=hosts).ask

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("passing", [httpx.Response(503), httpx.Response(429), httpx.ConnectError("reset")])
def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch, passing: httpx.Response | Exception) -> None:
    there = Registry(monkeypatch, passing, passing, httpx.Response(200, content=b"x", headers={"A": "b"}))
    answer = there.ask(URL, {}, "")
    assert (answer.status, answer.body, answer.headers["a"]) == (200, b"x", "b")
    assert there.pauses == [*ASK_PAUSES_S]


def test_the_last_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Registry(monkeypatch, *(httpx.Response(503) for _ in range(3))).ask(URL, {}, "").status == 503
    with pytest.raises(ConnectionError, match="no route"):
        Registry(monkeypatch, *[httpx.ConnectError("no route")] * 3).ask(URL, {}, "")


@pytest.mark.parametrize("status", [401, 404])
def test_a_final_answer_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    there = Registry(monkeypatch, httpx.Response(status))
    assert there.ask(URL, {}, "").status == status
    assert there.pauses == []


def test_a_certificate_that_nobody_trusts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Registry(monkeypatch, httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"))
    with pytest.raises(RefusedError, match="CERTIFICATE_VERIFY_FAILED") as refused:
        there.ask(URL, {}, "")
    assert "artifacts.ca" in refused.value.hint


def test_a_host_that_does_not_exist_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = httpx.ConnectError("no such host")
    unknown.__cause__ = socket.gaierror(socket.EAI_NONAME, "no such host")
    there = Registry(monkeypatch, unknown)
    with pytest.raises(ConnectionError, match="no such host"):
        there.ask(URL, {}, "")
    assert there.pauses == []


def test_a_document_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LIMIT_BYTES", 10)
    with pytest.raises(VerificationError, match="larger than"):
        Registry(monkeypatch, httpx.Response(200, content=b"x" * 11)).ask(URL, {}, "")
    assert Registry(monkeypatch, httpx.Response(200, content=b"x" * 10)).ask(URL, {}, "").status == 200
    assert LIMIT_BYTES == 8 * 2**20


def test_a_token_goes_to_the_host_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage behind a registry refuses a request with two kinds of credentials, and must not see the token."""
    moved = httpx.Response(307, headers={"Location": "https://storage.example.com/blob?signature=x"})
    there = Registry(monkeypatch, moved, httpx.Response(200))
    there.ask(URL, {"Accept": "a/b"}, "Bearer secret")
    assert [request.headers.get("authorization") for request in there.requests] == ["Bearer secret", None]
    assert [request.headers["accept"] for request in there.requests] == ["a/b", "a/b"]


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        (HostPolicy.of([], ["storage.example.com"]), "is one of artifacts.denied_hosts"),
        (HostPolicy.of(["registry.example.com"], []), "is not one of artifacts.allowed_hosts"),
    ],
)
def test_a_registry_redirects_only_to_hosts_that_may_be_asked(
    monkeypatch: pytest.MonkeyPatch, hosts: HostPolicy, says: str
) -> None:
    moved = httpx.Response(307, headers={"Location": "https://storage.example.com/blob?signature=x"})
    there = Registry(monkeypatch, moved, hosts=hosts)
    with pytest.raises(ConfigError, match=f"storage.example.com, to which {URL} redirects, {says}"):
        there.ask(URL, {}, "")
    assert len(there.requests) == 1
