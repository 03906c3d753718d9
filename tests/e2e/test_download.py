"""Downloads from a server on this machine that speaks TLS and misbehaves as told."""

from __future__ import annotations

import io
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, ImagegenError, RefusedError, VerificationError
from imagegen.fetch import download
from imagegen.fetch.credentials import Address
from imagegen.fetch.download import StatusError, fetch
from imagegen.fetch.http import Web, proxy_for
from imagegen.fetch.request import shown_url
from tests.e2e.download_support import DATA, SHA256, Answer, Server, listening_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with listening_server(tmp_path_factory.mktemp("ca")) as told:
        yield told


@pytest.fixture
def server(listening: Server) -> Server:
    listening.forget()
    return listening


@pytest.fixture
def into(tmp_path: Path) -> Iterator[Path]:
    target = tmp_path / "cache" / "artifact"
    yield target
    assert {file.name for file in target.parent.glob("*")} <= {target.name}, "something was left behind"


def test_the_digest_is_of_the_bytes_as_they_arrive(server: Server, into: Path) -> None:
    server.answers = [Answer(body=DATA, headers={"Content-Encoding": "gzip"})]
    found = server.fetch(into)
    assert (found.sha256, found.size) == (SHA256, len(DATA))
    assert into.read_bytes() == DATA
    assert stat.S_IMODE(into.stat().st_mode) == 0o600
    assert server.asked[0][1]["accept-encoding"] == "identity"


def test_a_broken_connection_is_resumed(server: Server, into: Path) -> None:
    tag = {"ETag": '"one"'}
    rest = DATA[1000:]
    server.answers = [
        Answer(body=DATA, headers=tag, cut=1000),
        Answer(206, tag | {"Content-Range": f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"}, rest),
    ]
    found = server.fetch(into)
    assert (found.sha256, found.size) == (SHA256, len(DATA))
    assert into.read_bytes() == DATA
    assert server.asked[1][1]["range"] == "bytes=1000-"
    assert server.asked[1][1]["if-range"] == '"one"'
    assert server.pauses == [1.0]


@pytest.mark.parametrize("tag", [{}, {"ETag": 'W/"one"'}], ids=["no tag", "weak tag"])
def test_nothing_is_resumed_that_may_be_other_bytes(server: Server, into: Path, tag: dict[str, str]) -> None:
    server.answers = [Answer(body=DATA, headers=tag, cut=1000), Answer(body=DATA, headers=tag)]
    found = server.fetch(into)
    assert (found.sha256, found.size) == (SHA256, len(DATA))
    assert "range" not in server.asked[1][1]


@pytest.mark.parametrize(
    "second",
    [
        Answer(200, {"ETag": '"two"'}, DATA),
        Answer(206, {"ETag": '"two"', "Content-Range": f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"}, DATA[1000:]),
        Answer(206, {"ETag": '"one"', "Content-Range": f"bytes 999-{len(DATA) - 1}/{len(DATA)}"}, DATA[999:]),
        Answer(206, {"ETag": '"one"'}, DATA[1000:]),
        Answer(416, {}, b""),
    ],
    ids=["whole", "another tag", "another start", "no range", "416"],
)
def test_other_bytes_are_never_put_together(server: Server, into: Path, second: Answer) -> None:
    first = Answer(body=b"x" * len(DATA), headers={"ETag": '"one"'}, cut=1000)
    server.answers = [first, second, Answer(body=DATA)]
    found = server.fetch(into)
    assert (found.sha256, found.size) == (SHA256, len(DATA))
    assert into.read_bytes() == DATA


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(server: Server, into: Path, status: int) -> None:
    server.answers = [Answer(status), Answer(status, {"Retry-After": "7"}), Answer(body=DATA)]
    assert server.fetch(into).sha256 == SHA256
    assert server.pauses == [1.0, 7.0]


def test_it_gives_up_after_growing_pauses(server: Server, into: Path) -> None:
    server.answers, server.said = [Answer(503)] * 6, io.StringIO()
    with pytest.raises(RefusedError, match="could not be downloaded: the server responded with status 503") as raised:
        server.fetch(into, key="overrides.containerd")
    assert server.pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    said = [line.partition(".gz: ")[2] for line in server.said.getvalue().splitlines() if "retrying" in line]
    assert said == [f"the server responded with status 503; retrying in {pause} s" for pause in (1, 2, 4, 8, 16)]
    assert raised.value.hint == "try again later, or set overrides.containerd to another URL"


def test_progress_starts_the_count_again(server: Server, into: Path) -> None:
    tag = {"ETag": '"one"'}
    server.answers = [
        Answer(
            206 if at else 200,
            tag | ({"Content-Range": f"bytes {at}-{len(DATA) - 1}/{len(DATA)}"} if at else {}),
            DATA[at:],
            cut=10,
        )
        for at in range(0, 100, 10)
    ] + [Answer(206, tag | {"Content-Range": f"bytes 100-{len(DATA) - 1}/{len(DATA)}"}, DATA[100:])]
    assert server.fetch(into).sha256 == SHA256
    assert server.pauses == [1.0] * 10


def test_the_deadline_ends_it(server: Server, into: Path) -> None:
    clock = iter([0.0, download.DEADLINE_S + 1])
    server.answers = [Answer(body=DATA)]
    with pytest.raises(RefusedError, match="not downloaded within 30 minutes"):
        fetch(
            f"{server.url}/x",
            into,
            Web(
                environ={"SSL_CERT_FILE": server.ca},
                console=Console(io.StringIO(), plain=True),
                pause=server.pauses.append,
                now=lambda: next(clock),
            ),
        )


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_what_will_not_pass_fails_at_once(server: Server, into: Path, status: int) -> None:
    server.answers = [Answer(status)]
    with pytest.raises(ConfigError, match=f"the server responded with status {status}") as raised:
        server.fetch(into, key="overrides.containerd")
    assert "set overrides.containerd to another URL" in raised.value.hint
    assert server.pauses == []


def test_a_digest_that_differs_names_both(server: Server, into: Path) -> None:
    server.answers = [Answer(body=DATA)]
    with pytest.raises(VerificationError, match=f"has sha256 {SHA256}, but {'0' * 64} is expected"):
        server.fetch(into, expected_sha256="0" * 64)
    assert not into.exists()


@pytest.mark.parametrize("length", [str(len(DATA)), ""], ids=["told", "untold"])
def test_too_large_is_refused(server: Server, into: Path, length: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "LIMIT_BYTES", len(DATA) - 1)
    server.answers = [Answer(headers={"Content-Length": length, "Connection": "close"}, body=DATA)]
    with pytest.raises(VerificationError, match="is larger than"):
        server.fetch(into)


def test_redirects_are_followed(server: Server, into: Path) -> None:
    server.answers = [Answer(302, {"Location": "/elsewhere?sig=secret"}), Answer(body=DATA)]
    assert server.fetch(into).sha256 == SHA256
    assert server.asked[1][0] == "/elsewhere?sig=secret"


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("http://127.0.0.1/x?sig=secret", r"http://127.0.0.1/x, to which .* redirects, must start with https://"),
        ("file:///etc/passwd", "redirects to an invalid URL"),
        ("https://[broken", "redirects to an invalid URL"),
    ],
)
def test_no_redirect_leaves_https(server: Server, into: Path, location: str, says: str) -> None:
    server.answers = [Answer(302, {"Location": location})]
    with pytest.raises(ConfigError, match=says) as raised:
        server.fetch(into)
    assert "secret" not in str(raised.value)


def test_redirects_end(server: Server, into: Path) -> None:
    server.answers = [Answer(302, {"Location": "/again"})] * 11
    with pytest.raises(ConfigError, match="redirected more than 10 times"):
        server.fetch(into)


def test_a_user_in_the_url_is_sent_and_not_told(server: Server, into: Path) -> None:
    url = server.url.replace("https://", "https://robot:hunter2@")
    server.answers = [Answer(302, {"Location": f"{server.url}/moved"}), Answer(404)]
    with pytest.raises(ConfigError) as raised:
        fetch(
            f"{url}/x?sig=secret",
            into,
            Web(environ={"SSL_CERT_FILE": server.ca}),
        )
    assert server.asked[0][1]["authorization"].startswith("Basic ")
    assert "authorization" not in server.asked[1][1]
    assert not {"hunter2", "robot", "secret"} & set(_words(raised.value))


@pytest.mark.parametrize(
    ("place", "is_sent"),
    [("{url}/elsewhere", True), ("/elsewhere", True), ("https://localhost:{port}/elsewhere", False)],
    ids=["same host", "path", "other host"],
)
def test_credentials_of_an_address_stay_at_its_host(server: Server, into: Path, place: str, *, is_sent: bool) -> None:
    location = place.format(url=server.url, port=server.url.rpartition(":")[2])
    server.answers = [Answer(302, {"Location": location}), Answer(body=DATA)]
    address = Address(f"{server.url}/containerd.tar.gz?sig=secret", "Bearer secret")
    server.fetch(into, address=lambda: address)
    assert [path for path, _ in server.asked] == ["/containerd.tar.gz?sig=secret", "/elsewhere"]
    assert [headers.get("authorization") for _, headers in server.asked] == [
        "Bearer secret",
        "Bearer secret" if is_sent else None,
    ]


def test_each_attempt_has_an_address_of_its_own(server: Server, into: Path) -> None:
    server.answers = [Answer(503), Answer(body=DATA)]
    addresses = iter([Address(f"{server.url}/a?sig=1"), Address(f"{server.url}/a?sig=2")])
    server.fetch(into, address=lambda: next(addresses))
    assert [path for path, _ in server.asked] == ["/a?sig=1", "/a?sig=2"]


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("secret", "hint"),
    [("?sig=secret", "check the credentials of 127.0.0.1"), ("", "write 127.0.0.1")],
    ids=["private", "public"],
)
def test_a_refused_download_says_where_its_credentials_belong(
    server: Server, into: Path, status: int, secret: str, hint: str
) -> None:
    server.answers = [Answer(status)]
    address = Address(f"{server.url}/containerd.tar.gz{secret}")
    with pytest.raises(StatusError) as refused:
        server.fetch(into, address=(lambda: address) if secret else None, key="overrides.containerd_url")
    assert refused.value.status == status
    assert refused.value.hint.startswith(hint)
    assert refused.value.hint.endswith("or set overrides.containerd_url to another URL")
    assert "secret" not in f"{refused.value.message}{refused.value.hint}{server.said.getvalue()}"


def test_nothing_secret_is_narrated(server: Server, into: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = io.StringIO()
    server.answers = [Answer(body=DATA)]
    fetch(
        f"{server.url}/x?sig=secret", into, Web(environ={"SSL_CERT_FILE": server.ca}, console=Console(told, plain=True))
    )
    assert f"downloading {server.url}/x ..." in told.getvalue()
    assert "secret" not in told.getvalue() + caplog.text


def test_a_certificate_of_a_stranger_is_refused_at_once(server: Server, into: Path) -> None:
    with pytest.raises(RefusedError, match="CERTIFICATE_VERIFY_FAILED") as raised:
        fetch(
            f"{server.url}/x",
            into,
            Web(environ={}, console=Console(io.StringIO(), plain=True), pause=server.pauses.append),
        )
    assert "artifacts.ca" in raised.value.hint
    assert server.pauses == []


def test_a_bundle_that_is_not_there_is_named(server: Server, into: Path) -> None:
    with pytest.raises(ConfigError, match=r"REQUESTS_CA_BUNDLE names /no/such\.pem"):
        fetch(
            f"{server.url}/x",
            into,
            Web(environ={"REQUESTS_CA_BUNDLE": "/no/such.pem"}, console=Console(io.StringIO(), plain=True)),
        )


def test_stopping_ends_it(server: Server, into: Path) -> None:
    stop = threading.Event()
    stop.set()
    server.answers = [Answer(body=DATA)]
    with pytest.raises(Exception, match=r"^$") as raised:
        server.fetch(into, stop=stop)
    assert type(raised.value).__name__ == "CancelledError"
    assert not into.exists()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/p?sig=1#f", "https://h/p"),
        ("https://u:p@h:8443/p", "https://h:8443/p"),
        ("https://[::1]/p", "https://[::1]/p"),
        ("https://h:port/p?sig=1", "an invalid URL"),
    ],
)
def test_shown_url(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("url", ["http://h/x?sig=secret", "ftp://h/x", "https://", "nonsense", "https://h:port/x"])
def test_only_https_is_fetched(url: str, into: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        fetch(url, into, Web(environ={}))
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("environ", "host", "proxy"),
    [
        ({}, "dl.k8s.io", None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "dl.k8s.io", "http://proxy:3128"),
        ({"https_proxy": "proxy:3128"}, "dl.k8s.io", "http://proxy:3128"),
        ({"ALL_PROXY": "http://all:1", "HTTPS_PROXY": "http://https:2"}, "dl.k8s.io", "http://https:2"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "dl.k8s.io", None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "k8s.io"}, "dl.k8s.io", None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "a, .K8s.io"}, "dl.k8s.io", None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "8s.io"}, "dl.k8s.io", "http://p"),
        ({"HTTPS_PROXY": "http://p", "no_proxy": "*"}, "dl.k8s.io", None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": ""}, "dl.k8s.io", "http://p"),
    ],
)
def test_proxy_for(environ: dict[str, str], host: str, proxy: str | None) -> None:
    assert proxy_for(host, environ) == proxy


def test_a_proxy_of_another_kind_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError) as raised:
        proxy_for("dl.k8s.io", {"HTTPS_PROXY": "socks5://u:hunter2@p"})
    assert "hunter2" not in raised.value.message


def test_the_proxy_is_used_and_named_where_it_refuses(server: Server, into: Path) -> None:
    with pytest.raises(RefusedError, match=f"the proxy {server.url} refuses the connection: 403") as raised:
        fetch(
            "https://dl.k8s.io/x",
            into,
            Web(
                environ={"SSL_CERT_FILE": server.ca, "HTTPS_PROXY": server.url},
                console=Console(io.StringIO(), plain=True),
                pause=server.pauses.append,
            ),
        )
    assert [line for line, _ in server.asked] == ["CONNECT dl.k8s.io:443"]
    assert "HTTPS_PROXY" in raised.value.hint


@pytest.mark.parametrize("proxy", ["http://u:hunter2@127.0.0.1:1", "http://u:hunter2@no-such-host.invalid:3128"])
def test_a_proxy_that_is_down_is_named_without_its_password(proxy: str, into: Path) -> None:
    with pytest.raises(RefusedError) as raised:
        fetch(
            "https://dl.k8s.io/x",
            into,
            Web(environ={"HTTPS_PROXY": proxy}, console=Console(io.StringIO(), plain=True), pause=lambda _: None),
        )
    assert f"the proxy {proxy.replace('u:hunter2@', '')} cannot be reached: " in raised.value.message
    assert "HTTPS_PROXY" in raised.value.hint
    assert "hunter2" not in raised.value.message


def _words(error: ImagegenError) -> list[str]:
    text = " ".join((error.message, error.hint, *error.details))
    return text.replace(":", " ").replace("@", " ").replace("=", " ").replace("?", " ").split()
