"""Requests as values, artifacts as a host, and the environment of a child."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagegen.rehearsal.network.artifact_server import ArtifactServer
from imagegen.rehearsal.network.environment import child_environment, is_removed, proxy_variables
from imagegen.rehearsal.network.messages import Request, parse_target

_URL = "https://dl.test/v1/kubelet.exe"
_DATA = b"0123456789"
_ARTIFACTS = ArtifactServer(
    {_URL: _DATA, "https://cdn.test/signed?sig=1": b"signed"},
    redirects={"https://github.test/release.tgz": "https://cdn.test/signed?sig=1"},
)


def _request(url: str, method: str = "GET", **headers: str) -> Request:
    host, _, rest = url.removeprefix("https://").partition("/")
    target = f"/{rest}"
    path, query = parse_target(target)
    return Request(
        method, host, path, query, {key.replace("_", "-"): value for key, value in headers.items()}, b"", target
    )


def test_a_target_becomes_path_and_query() -> None:
    assert parse_target("/a%20b?x=1&x=2&empty=&$expand=y") == ("/a%20b", {"x": "2", "empty": "", "$expand": "y"})


@pytest.mark.parametrize(
    ("wanted", "status", "body", "content_range"),
    [
        ("", 200, _DATA, ""),
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=-", 200, _DATA, ""),
        ("lines=1-2", 200, _DATA, ""),
    ],
)
def test_ranges(wanted: str, status: int, body: bytes, content_range: str) -> None:
    answer = _ARTIFACTS(_request(_URL, range=wanted))
    assert (answer.status, answer.body, answer.header("content-range")) == (status, body, content_range)


def test_a_range_of_another_version_gets_the_whole() -> None:
    etag = _ARTIFACTS(_request(_URL)).header("etag")
    assert _ARTIFACTS(_request(_URL, range="bytes=4-", if_range=etag)).status == 206
    assert _ARTIFACTS(_request(_URL, range="bytes=4-", if_range='"old"')).body == _DATA


def test_a_redirect_leads_to_a_url_with_its_query() -> None:
    answer = _ARTIFACTS(_request("https://github.test/release.tgz"))
    assert (answer.status, answer.header("location")) == (302, "https://cdn.test/signed?sig=1")
    assert _ARTIFACTS(_request(answer.header("location"))).body == b"signed"
    assert _ARTIFACTS(_request("https://cdn.test/signed")).status == 404


@pytest.mark.parametrize(
    ("request_", "status", "fault"),
    [
        (_request("https://dl.test/other?sig=secret"), 404, "unexpected download https://dl.test/other"),
        (_request(_URL, "PUT"), 405, f"unexpected download request PUT {_URL}"),
    ],
)
def test_what_was_not_given_is_a_fault(request_: Request, status: int, fault: str) -> None:
    answer = _ARTIFACTS(request_)
    assert (answer.status, answer.fault) == (status, fault)


def test_a_digest_is_there_or_is_not_and_neither_is_a_fault() -> None:
    server = ArtifactServer({_URL: _DATA}, digests={f"{_URL}.sha256": b"ab"})
    assert server(_request(f"{_URL}.sha256")).body == b"ab"
    for address in (f"{_URL}.sha256sum", "https://dl.test/v1/SHA256SUMS"):
        answer = server(_request(address))
        assert (answer.status, answer.fault) == (404, "")
    assert server(_request(f"{_URL}.sha512")).fault == f"unexpected download {_URL}.sha512"


def test_artifacts_know_their_hosts_and_take_https_only() -> None:
    assert _ARTIFACTS.hosts == {"dl.test", "cdn.test", "github.test"}
    with pytest.raises(ValueError, match="not an https URL"):
        ArtifactServer({"http://dl.test/x": b""})


@pytest.mark.parametrize(
    "name",
    [
        "AWS_PROFILE",
        "AZURE_CLIENT_ID",
        "ARM_OIDC_TOKEN",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_DIR",
        "IDENTITY_ENDPOINT",
        "SYSTEM_ACCESSTOKEN",
    ],
)
def test_what_leads_out_of_the_network_is_removed(name: str) -> None:
    assert is_removed(name)


def test_a_child_keeps_the_rest_and_gets_the_networks_own() -> None:
    added = proxy_variables("http://127.0.0.1:1", Path("/ca.pem"), ["AWS_CA_BUNDLE"])
    child = child_environment({"PATH": "/bin", "AWS_PROFILE": "mine", "all_proxy": "x", "NO_PROXY": "*"}, added)
    assert child == {"PATH": "/bin", **added}
    assert child["NO_PROXY"] == child["no_proxy"] == ""
    assert child["AWS_CA_BUNDLE"] == child["SSL_CERT_FILE"] == "/ca.pem"
