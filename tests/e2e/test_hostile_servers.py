"""Servers that misbehave, runs that are killed and runs at the same time: a lock is refused by name, or right.

docs/trust.md has a row for each of these tests.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import io
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, ImagegenError, RefusedError, VerificationError
from imagegen.base.hosts import ANY_HOST, HostPolicy
from imagegen.fetch import download, http
from imagegen.fetch.cache import Cache
from imagegen.fetch.credentials import Address
from imagegen.fetch.http import Web
from imagegen.fetch.lock import LockedArtifact
from imagegen.fetch.lookup import Sources, find_ca_hosts, lock_artifacts
from imagegen.fetch.request import ArtifactRequest, PublishedDigest, host_of
from tests.deadlines import HANG_S
from tests.e2e.download_support import DATA, SHA256, Answer, Server, listening_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

TAG = {"ETag": '"one"'}
# Long enough for a busy machine, and far below what a server could hold a lock without bounds.
BOUND_S = 20.0


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with listening_server(tmp_path_factory.mktemp("ca")) as told:
        yield told


@pytest.fixture
def server(listening: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    listening.forget()
    monkeypatch.setattr(download, "PAUSES_S", (0.0,) * 5)
    return listening


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 2**30, print)


def lock(
    server: Server,
    cache: Cache,
    hosts: HostPolicy = ANY_HOST,
    url: str = "",
    **request: Any,  # noqa: ANN401 - its fields
) -> LockedArtifact:
    environ, console = {"SSL_CERT_FILE": server.ca}, Console(io.StringIO(), plain=True)
    web = Web(environ=environ, console=console, hosts=hosts)
    answering = dataclasses.replace(web, pause=lambda _: None)
    sources = Sources(web=web, cache=cache, ask=answering.ask, console=console)
    address = url or f"{server.url}/tool.exe"
    asked = ArtifactRequest("tool", address, None, "file", "overrides.tool_url", address)
    return lock_artifacts({"tool": dataclasses.replace(asked, **request)}, None, sources)["tool"]


@dataclasses.dataclass(frozen=True)
class Case:
    """What a server does, and what the operator reads."""

    answers: list[Answer]
    says: str
    kind: type[ImagegenError] = RefusedError
    forever: bool = False
    hosts: HostPolicy = ANY_HOST
    attempts: int | None = None


def moved(location: str) -> Answer:
    return Answer(302, {"Location": location})


def part(start: int, total: int, tag: str = '"one"') -> Answer:
    return Answer(206, {"ETag": tag, "Content-Range": f"bytes {start}-{total - 1}/{total}"}, DATA[start:])


FIRST = Answer(body=DATA, headers=TAG, cut=1000)
DENIED = HostPolicy.of([], ["denied.example"])
CASES = {
    "redirect to http": Case(
        [moved("http://127.0.0.1/x")],
        "http://127.0.0.1/x, to which https://127.0.0.1:PORT/tool.exe redirects, must",
        ConfigError,
    ),
    "redirect to a denied host": Case(
        [moved("https://denied.example/x")],
        "denied.example, to which https://127.0.0.1:PORT/tool.exe redirects, is one of artifacts.denied_hosts",
        ConfigError,
        hosts=DENIED,
    ),
    "redirect to a denied host, spelt otherwise": Case(
        [moved("https://user@DENIED.example.:8443/x")],
        "denied.example.:8443, to which https://127.0.0.1:PORT/tool.exe redirects, is one of artifacts.denied_hosts",
        ConfigError,
        hosts=DENIED,
    ),
    "redirect to a host that is not allowed": Case(
        [moved("/here"), moved("https://other.example/x")],
        "other.example, to which https://127.0.0.1:PORT/tool.exe redirects, is not one of artifacts.allowed_hosts",
        ConfigError,
        hosts=HostPolicy.of(["127.0.0.1:port"], []),
    ),
    "redirect loop": Case([moved("/tool.exe")], "was redirected more than 10 times", ConfigError, forever=True),
    "slow drip of the file": Case([Answer(body=DATA, drip_s=0.05)], "bytes arrived within", forever=True),
    "slow drip of the headers": Case(
        [Answer(drips_headers=True, drip_s=0.05)], "no response within 0.3 s", forever=True, attempts=1
    ),
    "another range": Case([FIRST, part(999, len(DATA))] * 6, "the server sent another range than requested"),
    "another total": Case(
        [FIRST, part(1000, len(DATA) + 1)] * 6,
        f"the server first said that the file has {len(DATA)} bytes, and then {len(DATA) + 1}",
    ),
    "slow drip of a chunk's extension": Case(
        [Answer(drips_extension=b"2\r\nMZ\r\n", drip_s=0.05)], "no bytes arrived within 0.2 s", forever=True
    ),
    "slow drip of the first chunk's extension": Case(
        [Answer(drips_extension=b"", drip_s=0.05)], "no bytes arrived within 0.2 s", forever=True
    ),
    "a total of many digits": Case(
        [FIRST, Answer(206, {**TAG, "Content-Range": f"bytes 1000-1999/{'9' * 5000}"}, DATA[1000:])] * 6,
        "the server sent another range than requested",
    ),
    "a range of many digits": Case(
        [FIRST, Answer(206, {**TAG, "Content-Range": f"bytes {'9' * 5000}-1999/{len(DATA)}"}, DATA[1000:])] * 6,
        "the server sent another range than requested",
    ),
    "a Content-Length of many digits": Case(
        [Answer(body=DATA, headers={"Content-Length": "9" * 5000})], "could not be downloaded", forever=True
    ),
    "a 206 without ETag": Case(
        [FIRST, Answer(206, {"Content-Range": f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"}, DATA[1000:])] * 6,
        "the server does not say of which version of the file it sent the rest",
    ),
    "truncation without a Content-Length": Case(
        [Answer(body=DATA, headers={"Content-Length": ""})], "the connection was cut before the end", forever=True
    ),
    "no range": Case([FIRST, Answer(206, TAG, DATA[1000:])] * 6, "the server sent another range than requested"),
    "416": Case([FIRST, Answer(416)] * 6, "the server responded with status 416"),
    "another ETag within one file": Case(
        [FIRST, part(1000, len(DATA), '"two"')] * 6, "the file changed on the server during the download"
    ),
    "truncation": Case([Answer(body=DATA, cut=1000)], "the connection was cut before the end", forever=True),
    "a Content-Length that is too large": Case(
        [Answer(body=DATA, headers={"Content-Length": str(len(DATA) + 1)})],
        "the connection was cut before the end",
        forever=True,
    ),
    "compressed": Case(
        [Answer(body=DATA, headers={"Content-Encoding": "gzip"})],
        "the server compressed the file (Content-Encoding: gzip)",
        VerificationError,
    ),
    "larger than the limit": Case(
        [Answer(headers={"Content-Length": str(2**40)})], "is larger than 4 GiB", VerificationError
    ),
    "an error that stays": Case([Answer(503)], "the server responded with status 503", forever=True),
    "a login page": Case([Answer(body=b"<!doctype html><title>Sign in")], "is a web page, not", VerificationError),
}


@pytest.mark.parametrize("name", CASES)
def test_a_server_that_misbehaves_is_refused_by_name(
    server: Server, cache: Cache, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, port = CASES[name], server.url.rpartition(":")[2]
    # What takes minutes takes a moment. Any other server has its time, however busy this machine is.
    if any(answer.drips_headers for answer in case.answers):
        monkeypatch.setattr(http, "HEADERS_TIMEOUT_S", 0.3)
    elif any(answer.drip_s for answer in case.answers):
        monkeypatch.setattr(download, "PACE_S", 0.2)
    server.answers = [*case.answers]
    server.forever = case.answers[0] if case.forever else None
    hosts = HostPolicy.of([host.replace("port", port) for host in case.hosts.allowed], case.hosts.denied)
    began = time.monotonic()
    with pytest.raises(case.kind) as refused:
        lock(server, cache, hosts)
    assert time.monotonic() - began < BOUND_S
    assert case.says.replace("PORT", port) in refused.value.message
    assert type(refused.value) is case.kind
    assert case.attempts in (None, len(server.asked))
    assert left_in(cache) == []


def left_in(cache: Cache) -> list[str]:
    """A login page has a digest of its own, and no artifact is made of it."""
    web_page = hashlib.sha256(CASES["a login page"].answers[0].body).hexdigest()
    files = [path.name for path in cache.folder.rglob("*") if path.is_file() and path.parent.name != "urls"]
    return [name for name in files if name != web_page]


def test_a_file_without_a_content_length_is_whole_if_its_connection_says_so(server: Server, cache: Cache) -> None:
    server.answers = [Answer(body=DATA, headers={"Content-Length": ""}, says_end=True)]
    assert lock(server, cache).sha256 == SHA256


def test_a_stalled_download_ends_at_once_when_the_run_ends(server: Server, tmp_path: Path) -> None:
    """Not when a timeout of minutes is over."""
    stop, server.forever = threading.Event(), Answer(body=DATA, drip_s=BOUND_S)
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    began = time.monotonic()
    with pytest.raises(concurrent.futures.CancelledError):
        server.fetch(tmp_path / "tool.exe", stop=stop)
    timer.join()
    assert time.monotonic() - began < BOUND_S / 2


@pytest.mark.parametrize("answer", [Answer(body=DATA, drip_s=BOUND_S), Answer(503)], ids=["stalled", "retried"])
def test_a_question_to_a_registry_ends_at_once_when_the_run_ends(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(http, "ASK_PAUSES_S", (BOUND_S,))
    stop, server.forever = threading.Event(), answer
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    began = time.monotonic()
    ask = Web(environ={"SSL_CERT_FILE": server.ca}, console=Console(io.StringIO(), plain=True), stop=stop).ask
    with pytest.raises(concurrent.futures.CancelledError):
        ask(f"{server.url}/v2/", {}, "")
    timer.join()
    assert time.monotonic() - began < BOUND_S / 2


@pytest.mark.parametrize(
    ("location", "path", "recorded"),
    [
        ("/moved/tool.exe?sig=secret#f", "/moved/tool.exe?sig=secret", "PLACE/moved/tool.exe"),
        ("/a b/t\u00f6\u00f6l.exe", "/a%20b/t%C3%B6%C3%B6l.exe", "PLACE/a%20b/t%C3%B6%C3%B6l.exe"),
        ("/tool.exe?again", "/tool.exe?again", None),
        (f"/{'x' * 3000}", f"/{'x' * 3000}", None),
    ],
    ids=["a query", "other characters", "the same path", "too long"],
)
def test_a_lock_says_where_a_url_redirects(
    server: Server, cache: Cache, location: str, path: str, recorded: str | None
) -> None:
    """Without what may be a secret. Nothing downloads from there, and the cache has it for the next lock."""
    server.answers = [moved(location), Answer(body=DATA, headers=TAG)]
    expected = recorded and recorded.replace("PLACE", server.url)
    first = lock(server, cache)
    assert (first.url, first.redirected_to, first.sha256) == (f"{server.url}/tool.exe", expected, SHA256)
    assert [asked for asked, _ in server.asked] == ["/tool.exe", path]
    assert "secret" not in "".join(file.read_text() for file in (cache.folder / "urls").iterdir())
    server.answers = [moved("/elsewhere"), Answer(304)]
    assert lock(server, cache).redirected_to == f"{server.url}/elsewhere"
    assert lock(server, cache, sha256=SHA256).redirected_to == expected, "from the cache"


def test_the_redirect_of_a_private_file_is_not_recorded(server: Server, tmp_path: Path) -> None:
    server.answers = [moved("/secret/tool.exe"), Answer(body=DATA)]
    assert server.fetch(tmp_path / "x", address=lambda: Address(f"{server.url}/tool.exe")).redirected_to == ""


@pytest.mark.parametrize("sha256", ["cd" * 32, None])
def test_a_content_length_that_is_too_small_gives_other_bytes(server: Server, cache: Cache, sha256: str | None) -> None:
    """HTTP ends the file there: the digest tells."""
    server.answers = [
        Answer(body=DATA, headers={"Content-Length": str(len(DATA) - 1)}),
        Answer(body=SHA256.encode()),
    ]
    digest = PublishedDigest(f"{server.url}/tool.exe.sha256", required=True)
    with pytest.raises(VerificationError, match=f"has sha256 {hashlib.sha256(DATA[:-1]).hexdigest()}, but"):
        lock(server, cache, sha256=sha256, digest=digest)


def test_a_certificate_of_a_stranger_is_refused_at_once(server: Server, cache: Cache) -> None:
    with pytest.raises(RefusedError, match="CERTIFICATE_VERIFY_FAILED"):
        lock(dataclasses.replace(server, ca=""), cache)
    assert left_in(cache) == []


def test_an_authority_of_the_config_is_trusted_and_the_lock_says_who_needs_it(server: Server, cache: Cache) -> None:
    """Whatever this machine trusts: the builder does not have its store."""
    server.forever = Answer(body=DATA, headers=TAG)
    der = ssl.PEM_cert_to_DER_cert(Path(server.ca).read_text())
    trusting = dataclasses.replace(ANY_HOST, authorities=(der,))
    found = lock(dataclasses.replace(server, ca=""), cache, trusting)
    assert found.sha256 == SHA256
    url, name = f"{server.url}/tool.exe", host_of(server.url)
    console, bundle = Console(io.StringIO(), plain=True), {"SSL_CERT_FILE": server.ca}
    web = Web(environ={}, console=console)
    sources = Sources(web=web, cache=cache, ask=web.ask, console=console)
    # A bundle of the environment has the place of the public authorities.
    for hosts, environ, needs in ((trusting, {}, True), (ANY_HOST, {}, False), (trusting, bundle, False)):
        asking = dataclasses.replace(sources, web=Web(environ=environ, console=console, hosts=hosts))
        assert find_ca_hosts({"tool": url}, {}, asking) == {name: needs}
    asked = len(server.asked)
    assert find_ca_hosts({"tool": url}, {name: True}, sources) == {name: True}
    assert len(server.asked) == asked


@contextlib.contextmanager
def speaking(data: bytes) -> Iterator[str]:
    """The address of a server that sends these bytes to everybody and speaks no TLS."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)

        def serve() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    accepted, _ = listening.accept()
                    with accepted:
                        accepted.sendall(data)
                        accepted.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listening.getsockname()[1]}/tool.exe"
        finally:
            ended.set()
            thread.join()


def test_a_server_without_tls_is_refused(server: Server, cache: Cache) -> None:
    with speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nMZ") as url, pytest.raises(RefusedError) as refused:
        lock(server, cache, url=url)
    assert "could not be downloaded: [SSL" in refused.value.message
    assert left_in(cache) == []


def test_a_published_digest_on_a_denied_host_is_not_read(server: Server, cache: Cache) -> None:
    server.answers = [Answer(body=DATA), moved("https://denied.example/x")]
    digest = PublishedDigest(f"{server.url}/tool.exe.sha256", required=True)
    with pytest.raises(ConfigError, match=r"denied\.example, to which .* redirects, is one of artifacts\.denied_hosts"):
        lock(server, cache, DENIED, digest=digest)


@pytest.mark.parametrize(
    "dripping",
    [Answer(body=SHA256.encode() * 100, drip_s=0.02), Answer(drips_extension=b"1\r\na\r\n", drip_s=0.02)],
    ids=["bytes", "extension"],
)
def test_a_slow_published_digest_is_refused(
    server: Server, cache: Cache, monkeypatch: pytest.MonkeyPatch, dripping: Answer
) -> None:
    monkeypatch.setattr(http, "ANSWER_TIMEOUT_S", 0.2)
    server.answers = [Answer(body=DATA), dripping, dripping, dripping]
    digest = PublishedDigest(f"{server.url}/tool.exe.sha256", required=True)
    with pytest.raises(VerificationError, match=r"cannot be read: it did not arrive within 0\.2 s"):
        lock(server, cache, digest=digest)


# A process of its own, as `imagegen lock` is: with the server's address, its authority and the folder of the cache.
PROCESS = """
import sys
from pathlib import Path
from imagegen.fetch.cache import Cache
from imagegen.fetch.lookup import Sources, lock_artifacts
from imagegen.fetch.http import Web
from imagegen.fetch.request import ArtifactRequest
from imagegen.base.console import Console
url, ca, folder, limit = sys.argv[1:]
environ, console = {"SSL_CERT_FILE": ca}, Console(sys.stderr, plain=True)
cache = Cache(Path(folder), int(limit), console.warn)
web = Web(environ=environ, console=console)
sources = Sources(web=web, cache=cache, ask=web.ask, console=console)
names = [f"tool-{number}" for number in range(8)]
requests = {name: ArtifactRequest(name, f"{url}/{name}", None, "file", "", f"{url}/{name}") for name in names}
print(*sorted({artifact.sha256 for artifact in lock_artifacts(requests, None, sources).values()}))
"""


@contextlib.contextmanager
def locking(server: Server, cache: Cache, limit: int = 2**30) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", PROCESS, server.url, server.ca, str(cache.folder), str(limit)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("limit", [2**30, 0])
def test_two_locks_use_one_cache_at_the_same_time(server: Server, cache: Cache, limit: int) -> None:
    """With a limit of nothing, each removes at once what neither of them holds."""
    server.forever = Answer(body=DATA, headers=TAG)
    with locking(server, cache, limit) as one, locking(server, cache, limit) as two:
        ended = [process.communicate(timeout=HANG_S) for process in (one, two)]
    assert [out for out, _ in ended] == [f"{SHA256}\n"] * 2, ended
    left = [SHA256] if limit else []
    assert [one.sha256 for one in cache.files()] == left
    assert cache.verify([SHA256]) == {*left}


def test_a_killed_lock_leaves_nothing_that_counts(server: Server, cache: Cache) -> None:
    server.forever = Answer(body=DATA, drip_s=0.01)
    with locking(server, cache) as process:
        # Until the parts grow on the disk: the buffer of a part is larger than what drips.
        deadline = time.monotonic() + BOUND_S
        while not [*cache.folder.glob("parts-*/[0-9a-f]*")]:
            assert time.monotonic() < deadline
            assert process.poll() is None
            server.ended.wait(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=BOUND_S)
    assert [*cache.folder.glob("parts-*/[0-9a-f]*")] != []
    assert cache.files() == []
    server.forever = Answer(body=DATA, headers=TAG)
    assert lock(server, cache).sha256 == SHA256
    assert [*cache.folder.glob("parts-*")] == []
    assert [one.sha256 for one in cache.files()] == [SHA256]
