"""What EC2 tells an instance that boots: its metadata with and without tokens, asked as any client may ask."""

from __future__ import annotations

import dataclasses
import json

import pytest

from imagegen.rehearsal.boot.model import Instance
from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.clouds.aws.boot import Ec2Platform, make_instance
from imagegen.rehearsal.clouds.aws.metadata import InstanceMetadata
from imagegen.rehearsal.machine.address import NODE_ADDRESS
from imagegen.rehearsal.network.messages import Request, Response

_ADDRESS = "169.254.169.254"
_NAME = "ip-10-0-0-7.ec2.internal"
_INSTANCE = make_instance(b"\x1f\x8bdata")
_KEY = _INSTANCE.public_keys["operators"]
_TOKEN = "/latest/api/token"  # noqa: S105 - the path of tokens
_LIFETIME = "x-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "x-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
_KINDS = {200: "text/plain", 400: "text/html", 401: "text/html", 403: "text/html", 404: "text/html", 405: "text/html"}


def _at_once() -> float:
    return 0.0


def _ask(metadata: InstanceMetadata, path: str, method: str = "GET", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return metadata(Request(method, _ADDRESS, path, headers=named))


def _get(path: str, instance: Instance = _INSTANCE) -> tuple[int, str]:
    answer = _ask(InstanceMetadata(instance, _at_once), path)
    return answer.status, answer.body.decode("latin-1")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/2009-04-04/meta-data/local-hostname", _NAME),
        ("/latest/meta-data/hostname", _NAME),
        ("/1.0/meta-data/instance-id", "i-0123456789abcdef0"),
        ("/latest/meta-data/instance-id/", "i-0123456789abcdef0"),
        ("/latest/meta-data/ami-id", "ami-0123456789abcdef0"),
        ("/latest/meta-data/instance-type", "m5.large"),
        ("/latest/meta-data/local-ipv4", NODE_ADDRESS),
        ("/latest/meta-data/placement", "availability-zone\navailability-zone-id\nregion"),
        ("/2009-04-04/meta-data/placement", "availability-zone"),
        ("/latest/meta-data/placement/region", "us-east-1"),
        ("/latest/meta-data/network/interfaces/macs", "0e:49:61:0f:c3:11/"),
        ("/2009-04-04/meta-data/public-keys", "0=operators"),
        ("/2009-04-04/meta-data/public-keys/0", "openssh-key"),
        ("/2009-04-04/meta-data/public-keys/0/openssh-key", f"{_KEY}\n"),
        ("/latest/user-data", "\x1f\x8bdata"),
        ("/latest/meta-data/events/maintenance/scheduled", "[]"),
        ("/latest/meta-data/hibernation/configured", "false"),
        ("/latest", "dynamic\nmeta-data\nuser-data"),
        ("/1.0/", "meta-data\nuser-data"),
        ("/latest/dynamic/instance-identity/", "document\npkcs7\nrsa2048\nsignature"),
    ],
)
def test_a_value_is_answered_under_each_version_that_has_it(path: str, text: str) -> None:
    assert _get(path) == (200, text)


@pytest.mark.parametrize(
    "path",
    [
        "/2009-04-04/meta-data/mac",
        "/2009-04-04/meta-data/hibernation/configured",
        "/1.0/dynamic/instance-identity/document",
        "/1.0/dynamic/instance-identity/pkcs7",
        "/2009-04-05/meta-data/instance-id",
        "/latest/meta-data/iam/security-credentials/",
        "/latest/meta-data/public-ipv4",
        "/latest/meta-data/public-keys/1/openssh-key",
        "/latest/meta-data/instance",
        "/latest/meta-data/instance-id/more",
        "/latest/meta-data/events/recommendations/rebalance",
        "/openstack/latest/meta_data.json",
    ],
)
def test_what_the_instance_does_not_have_is_not_found(path: str) -> None:
    status, text = _get(path)
    assert (status, "<h1>404 - Not Found</h1>" in text) == (404, True)


@pytest.mark.parametrize(
    ("instance", "folder", "name", "paths"),
    [
        (
            dataclasses.replace(_INSTANCE, public_keys={}),
            *("/latest/meta-data", "public-keys/"),
            ("/2009-04-04/meta-data/public-keys", "/2009-04-04/meta-data/public-keys/0/openssh-key"),
        ),
        (dataclasses.replace(_INSTANCE, user_data=b""), "/latest", "user-data", ("/2009-04-04/user-data",)),
    ],
    ids=["key-pair", "user-data"],
)
def test_what_the_creator_left_out_is_not_there(
    instance: Instance, folder: str, name: str, paths: tuple[str, ...]
) -> None:
    assert [_get(path, instance)[0] for path in paths] == [404 for _ in paths]
    assert [_get(path)[0] for path in paths] == [200 for _ in paths]
    assert name in _get(folder)[1].splitlines()
    assert name not in _get(folder, instance)[1].splitlines()


def test_every_version_lists_and_answers() -> None:
    versions = _get("/")[1].splitlines()
    assert {"1.0", "2009-04-04", "2019-10-01", "latest"} <= set(versions)
    assert {version: _get(f"/{version}/meta-data/instance-id")[0] for version in versions} == dict.fromkeys(
        versions, 200
    )


def test_the_identity_document_is_that_of_the_instance() -> None:
    document = json.loads(_get("/latest/dynamic/instance-identity/document")[1])
    assert (document["instanceId"], document["region"], document["privateIp"]) == (
        *("i-0123456789abcdef0", "us-east-1", NODE_ADDRESS),
    )


@pytest.mark.parametrize("name", ["pkcs7", "rsa2048", "signature"])
def test_a_signature_of_aws_is_refused_by_name(name: str) -> None:
    answer = _ask(InstanceMetadata(_INSTANCE, _at_once), f"/latest/dynamic/instance-identity/{name}")
    assert answer.fault.endswith(f"sign the identity of an instance: dynamic/instance-identity/{name}")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/latest/meta-data/", {}, 401),
        ("GET", "/", {}, 401),
        ("GET", "/latest/meta-data/nothing", {}, 401),
        ("GET", "/latest/meta-data/", {"x_aws_ec2_metadata_token": "guessed"}, 401),
        ("PUT", _TOKEN, {}, 400),
        ("PUT", _TOKEN, {"x_aws_ec2_metadata_token_ttl_seconds": "0"}, 400),
        ("PUT", _TOKEN, {"x_aws_ec2_metadata_token_ttl_seconds": "21601"}, 400),
        ("PUT", _TOKEN, {"x_aws_ec2_metadata_token_ttl_seconds": "soon"}, 400),
        ("PUT", _TOKEN, {"x_aws_ec2_metadata_token_ttl_seconds": "60", "x_forwarded_for": "192.0.2.1"}, 403),
        ("PUT", _TOKEN, {"x_aws_ec2_metadata_token_ttl_seconds": "21600"}, 200),
        ("GET", _TOKEN, {"x_aws_ec2_metadata_token_ttl_seconds": "60"}, 405),
        ("PUT", "/latest/meta-data/", {}, 405),
        ("POST", "/latest/user-data", {}, 405),
    ],
)
def test_an_instance_that_requires_tokens_answers_nothing_without_one(
    method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = _ask(
        InstanceMetadata(dataclasses.replace(_INSTANCE, requires_tokens=True), _at_once), path, method, **headers
    )
    assert (answer.status, answer.header("Content-Type")) == (status, _KINDS[status])


@pytest.mark.parametrize("required", [False, True])
def test_a_token_counts_until_it_expires(*, required: bool) -> None:
    now = [1000.0]
    instance = dataclasses.replace(_INSTANCE, requires_tokens=required)
    metadata = stand_in("aws").make_platform(instance, lambda: now[0]).hosts[_ADDRESS]
    given = metadata(Request("PUT", _ADDRESS, _TOKEN, headers={_LIFETIME: "60"}))
    token = {_TOKEN_HEADER: given.body.decode()}
    assert given.header(_LIFETIME) == "60"
    asked = Request("GET", _ADDRESS, "/latest/meta-data/instance-id", headers=token)
    assert metadata(asked).status == 200
    now[0] += 59
    assert metadata(asked).status == 200
    now[0] += 1
    assert metadata(asked).status == 401


def test_user_data_is_bytes() -> None:
    answer = _ask(InstanceMetadata(_INSTANCE, _at_once), "/latest/user-data")
    assert (answer.body, answer.header("content-type")) == (b"\x1f\x8bdata", "application/octet-stream")


def test_ec2_asks_for_no_report() -> None:
    platform = stand_in("aws").make_platform(_INSTANCE, _at_once)
    assert isinstance(platform, Ec2Platform)
    assert (list(platform.hosts), platform.refusal()) == ([_ADDRESS], None)
    assert (dict(platform.drives), dict(platform.dhcp_options)) == ({}, {26: (9001).to_bytes(2, "big")})
