"""Somebody else answers in AWS' place: who answered what is told in one message, and by what was being done."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import ConfigError, ImagegenError, PublishError, RefusedError, UnavailableError
from imagegen.providers.aws.client import ec2_clients, service_clients
from imagegen.providers.aws.faults import explain_errors
from imagegen.providers.aws.settings import AssumeRole, Auth
from imagegen.providers.aws.thorough_checks import capacity_checks
from imagegen.providers.checks import UNKNOWN

if TYPE_CHECKING:
    from botocore.awsrequest import AWSResponse

pytestmark = pytest.mark.usefixtures("cloud_descriptions")

ENVIRON = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
HOST = "ec2.us-east-1.amazonaws.com"
# A page that is no XML, and one that happens to be: the SDK takes that for an answer without images.
INSTEAD = "a proxy or web filter answered instead of AWS"
PAGE = b"<!DOCTYPE html>\n<html><head><meta charset=utf-8></head><body>Blocked<br></body></html>"
TIDY_PAGE = b"\xef\xbb\xbf<?xml version='1.0'?><!-- filter --><HTML><body>Blocked</body></HTML>"
REFUSAL = b"<Response><Errors><Error><Code>InvalidAction</Code><Message>no</Message></Error></Errors></Response>"


NOBODY = Auth()
Answers = Callable[[int, bytes], None]


@pytest.fixture
def answers(aws_answer: Callable[[int, bytes], AWSResponse], monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What every request is answered."""

    def play(status: int, body: bytes) -> None:
        monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", lambda *_: aws_answer(status, body))
        monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)

    return play


@pytest.fixture
def asked(answers: Answers) -> Callable[..., Any]:
    """What becomes of an answer; every request gets the same one."""

    def ask(status: int, body: bytes, failure: type[ImagegenError], *, role: bool = False) -> ImagegenError:
        assumed = AssumeRole(role_arn="arn:aws:iam::111122223333:role/images", session_name="nightly")
        auth = Auth(assume_role=assumed if role else None)
        answers(status, body)
        with (
            pytest.raises(failure) as raised,
            ec2_clients(ENVIRON, auth) as clients,
            explain_errors("looking", failure),
        ):
            clients("us-east-1").describe_images(Owners=["self"])
        passes = failure is RefusedError and status >= 500
        assert type(raised.value) is (UnavailableError if passes else failure)
        return raised.value

    return ask


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, PAGE, "200 with an HTML page: a proxy or web filter answered instead of AWS"),
        (200, TIDY_PAGE, "200 with an HTML page: a proxy or web filter answered instead of AWS"),
        (403, PAGE, f"403 with an HTML page: {INSTEAD}"),
        (302, b"", f"302 with an empty body: {INSTEAD}"),
        (403, b'{"blocked": true}', f"403 with something that is not XML: {INSTEAD}"),
        (502, PAGE, "502 with an HTML page"),
        (503, b"", "503 with an empty body"),
    ],
)
def test_who_answered_what_is_told_by_what_was_being_done(
    status: int, body: bytes, says: str, asked: Callable[..., Any]
) -> None:
    error = asked(status, body, PublishError if status == 200 else RefusedError)
    assert error.message == f"looking: {HOST} answered {says}"
    assert error.hint


QUOTAS, STS = "servicequotas.us-east-1.amazonaws.com", "sts.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("service", "host", "ask"),
    [
        ("ec2", HOST, lambda client: client.describe_images()),
        ("sts", STS, lambda client: client.get_caller_identity()),
        ("iam", "iam.amazonaws.com", lambda client: client.get_instance_profile(InstanceProfileName="x")),
        ("service-quotas", QUOTAS, lambda client: client.get_service_quota(ServiceCode="ec2", QuotaCode="x")),
        ("kms", "kms.us-east-1.amazonaws.com", lambda client: client.describe_key(KeyId="x")),
    ],
)
@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, PAGE, "200 with an HTML page: a proxy"),
        (200, b"", "200 with an empty body: a proxy"),
        (403, PAGE, "403 with an HTML page: a proxy"),
        (502, PAGE, "502 with an HTML page"),
    ],
)
def test_every_service_tells_who_answered(
    service: str, host: str, ask: Callable[[Any], object], status: int, body: bytes, says: str, answers: Answers
) -> None:
    answers(status, body)
    with (
        pytest.raises(RefusedError) as raised,
        service_clients(ENVIRON, NOBODY) as clients,
        explain_errors("asking", RefusedError),
    ):
        ask(clients(service, "us-east-1"))
    assert raised.value.message.startswith(f"asking: {host} answered {says}")


@pytest.mark.parametrize("body", [b"[]", b"not json", b"1", b"{", b"<a/>"])
def test_what_is_no_json_object_is_told_where_one_is_wanted(body: bytes, answers: Answers) -> None:
    answers(200, body)
    with (
        pytest.raises(RefusedError, match=f"{QUOTAS} answered 200 with something that is not"),
        service_clients(ENVIRON, NOBODY) as clients,
        explain_errors("asking", RefusedError),
    ):
        clients("service-quotas", "us-east-1").get_service_quota(ServiceCode="ec2", QuotaCode="x")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2"])
def test_an_endpoint_that_is_none_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "nohost")
    with (
        pytest.raises(ConfigError, match=f"^{name} is not valid: Invalid endpoint: nohost") as raised,
        service_clients({**ENVIRON, name: "nohost"}, NOBODY) as clients,
    ):
        clients("ec2", "us-east-1")
    assert raised.value.hint == f"write a complete URL, for example https://host.example, or leave {name} out"


def test_a_roles_endpoint_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, asked: Callable[..., Any]) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "nohost")
    monkeypatch.setitem(ENVIRON, "AWS_ENDPOINT_URL_STS", "nohost")
    assert asked(200, PAGE, ConfigError, role=True).message.startswith("AWS_ENDPOINT_URL_STS is not valid")


def test_a_quota_without_a_value_is_not_known(answers: Answers) -> None:
    answers(200, b"{}")
    size = {"InstanceType": "m5.large", "VCpuInfo": {"DefaultVCpus": 2}}
    ec2 = SimpleNamespace(
        describe_instance_type_offerings=lambda **_: {"InstanceTypeOfferings": [size]},
        describe_instance_types=lambda **_: {"InstanceTypes": [size]},
    )
    settings: Any = SimpleNamespace(
        region="us-east-1", spot=None, instance_types=["m5.large"], network=SimpleNamespace(subnet_id=None)
    )
    with service_clients(ENVIRON, NOBODY) as clients:
        asked_of = {"ec2": ec2, "service-quotas": clients("service-quotas", "us-east-1")}
        checks, _ = capacity_checks(lambda service, _: asked_of[service], settings)
    assert (checks[-1].verdict, checks[-1].message) == (UNKNOWN, "the answer of service-quotas has no value")


def test_a_page_instead_of_a_roles_credentials_is_told_of_too(asked: Callable[..., Any]) -> None:
    error = asked(403, PAGE, PublishError, role=True)
    assert error.message == (
        "looking: sts.us-east-1.amazonaws.com answered 403 with an HTML page: "
        "a proxy or web filter answered instead of AWS"
    )


def test_an_answer_that_is_cut_off_is_no_bug_of_imagegen(asked: Callable[..., Any]) -> None:
    error = asked(200, b"<DescribeImagesResponse><imagesSet>", RefusedError)
    assert error.message.startswith("looking: the answer is truncated or not from AWS: Unable to parse response")


def test_an_answer_of_ec2_goes_through(asked: Callable[..., Any]) -> None:
    assert asked(400, REFUSAL, RefusedError).message == "looking: InvalidAction: no"


@pytest.mark.parametrize("library", ["boto3", "botocore", "urllib3"])
def test_what_the_sdk_logs_goes_to_a_handler_of_its_own_and_not_to_standard_error(library: str) -> None:
    assert logging.getLogger(library).handlers
