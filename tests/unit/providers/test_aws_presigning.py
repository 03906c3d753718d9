"""Presigned addresses of S3: a server that computes the signature again accepts them, for as long as they were made."""

from __future__ import annotations

import datetime
import urllib.parse
from typing import TYPE_CHECKING

import pytest
from botocore.credentials import RefreshableCredentials

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.aws.storage import is_host, sign
from imagegen.rehearsal.clouds.aws.presigned import find_fault
from imagegen.rehearsal.network.messages import Request, parse_target

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"AKIAKEYS": "secret"}
ENVIRON = {"AWS_ACCESS_KEY_ID": "AKIAKEYS", "AWS_SECRET_ACCESS_KEY": "secret"}
SESSION = {**ENVIRON, "AWS_SESSION_TOKEN": "token/+="}
URL = "https://bucket.s3.eu-west-1.amazonaws.com/folder/containerd.tar.gz"


def _now(after_s: float = 0) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=after_s)


def _sign(url: str = URL, valid_s: float = 3600, environ: dict[str, str] = ENVIRON) -> str:
    return sign(RunFacts(environ, {}, ""), [url], valid_s)[url]


def _fault(address: str, after_s: float = 0) -> str:
    parts = urllib.parse.urlsplit(address)
    target = f"{parts.path}?{parts.query}"
    path, query = parse_target(target)
    request = Request("GET", parts.hostname or "", path, query, {}, b"", target)
    return find_fault(request, KEYS, _now(after_s))


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://s3.eu-west-1.amazonaws.com/bucket/a.zip",
        "https://bucket.s3.amazonaws.com/a.zip",
        "https://bucket.s3-eu-west-1.amazonaws.com/a.zip",
        "https://my.own.bucket.s3.dualstack.us-west-2.amazonaws.com/a.zip",
        "https://bucket.s3.us-gov-west-1.amazonaws.com/a.zip",
        "https://bucket.s3.eu-west-1.amazonaws.com/v1.0%2Bbuild/a%20b(1).zip",
        "https://bucket.s3.eu-west-1.amazonaws.com/v1.0+build/a.zip",
    ],
)
@pytest.mark.parametrize("environ", [ENVIRON, SESSION], ids=["keys", "session"])
def test_an_address_is_accepted_while_it_is_valid(url: str, environ: dict[str, str]) -> None:
    assert is_host(urllib.parse.urlsplit(url).hostname or "")
    address = _sign(url, environ=environ)
    assert urllib.parse.unquote(address.partition("?")[0]) == urllib.parse.unquote(url)
    assert _fault(address) == ""
    assert _fault(address, 3590) == ""
    assert _fault(address, 3700) == "AccessDenied: Request has expired"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("containerd.tar.gz", "other.tar.gz", "SignatureDoesNotMatch"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=7200", "SignatureDoesNotMatch"),
        ("bucket.s3.", "other.s3.", "SignatureDoesNotMatch"),
        ("eu-west-1%2F", "eu-west-2%2F", "AuthorizationHeaderMalformed"),
        ("AKIAKEYS", "AKIAOTHER", "InvalidAccessKeyId"),
        ("&X-Amz-Signature", "&X-Amz-Other", "the query has no X-Amz-Signature"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=9999999", "AuthorizationQueryParametersError"),
    ],
)
def test_the_stand_in_refuses_an_address_that_was_changed(old: str, new: str, fault: str) -> None:
    address = _sign()
    assert old in address
    assert _fault(address.replace(old, new)) == fault


@pytest.mark.parametrize(
    "host",
    [
        *("artifacts.example.com", "bucket.s3.eu-west-1.amazonaws.com.example.com", "amazonaws.com"),
        *("ec2.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com:8443"),
    ],
)
def test_other_hosts_are_not_of_s3(host: str) -> None:
    assert not is_host(host)


def test_more_than_a_week_is_refused_with_the_reason() -> None:
    with pytest.raises(RefusedError, match=r"valid for at most 7 days, but this build may download for 8\.0 days"):
        _sign(valid_s=8 * 86400)


@pytest.mark.parametrize(("left_s", "is_refused"), [(3500, True), (3700, False)])
def test_credentials_that_end_earlier_are_refused(left_s: float, *, is_refused: bool) -> None:
    end = _now(left_s).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    environ = {**SESSION, "AWS_CREDENTIAL_EXPIRATION": end}
    if not is_refused:
        assert _fault(_sign(environ=environ)) == ""
        return
    with pytest.raises(RefusedError, match="AWS ends these credentials too early") as refused:
        _sign(environ=environ)
    assert "must be valid for 1.0 hours" in refused.value.message
    assert "a role whose sessions may last 12 hours" in refused.value.hint


@pytest.mark.parametrize(("left_s", "is_refused"), [(3500, True), (3700, False)])
def test_sessions_of_a_role_that_end_earlier_are_refused(
    left_s: float, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    given = {"access_key": "AKIAKEYS", "secret_key": "secret", "token": "t"}
    end = _now(left_s).isoformat()
    role = RefreshableCredentials.create_from_metadata({**given, "expiry_time": end}, dict, "assume-role")
    monkeypatch.setattr("botocore.session.Session.get_credentials", lambda _: role)
    if not is_refused:
        assert _fault(_sign(environ={})) == ""
        return
    with pytest.raises(RefusedError, match="AWS ends these credentials too early"):
        _sign(environ={})


def test_without_credentials_the_error_names_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.session.Session.get_credentials", lambda _: None)
    with pytest.raises(ConfigError, match="no usable AWS credentials") as refused:
        _sign(environ={"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"})
    assert "AWS_ACCESS_KEY_ID" in refused.value.hint
