"""Somebody else answers in AWS' place: who answered what is told in one message, and by what was being done."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.errors import ImagegenError, PublishError, RefusedError
from imagegen.providers.aws.client import ec2_clients, explained

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.awsrequest import AWSResponse

pytestmark = pytest.mark.usefixtures("cloud_descriptions")

ENVIRON = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
HOST = "ec2.us-east-1.amazonaws.com"
# A page that is no XML, and one that happens to be: the SDK takes that for an answer without images.
PAGE = b"<!DOCTYPE html>\n<html><head><meta charset=utf-8></head><body>Blocked<br></body></html>"
TIDY_PAGE = b"\xef\xbb\xbf<?xml version='1.0'?><!-- filter --><HTML><body>Blocked</body></HTML>"
REFUSAL = b"<Response><Errors><Error><Code>InvalidAction</Code><Message>no</Message></Error></Errors></Response>"


@pytest.fixture
def asked(aws_answer: Callable[[int, bytes], AWSResponse], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What becomes of an answer; every request gets the same one."""

    def ask(status: int, body: bytes, failure: type[ImagegenError], *, role: bool = False) -> ImagegenError:
        arn = {"role_arn": "arn:aws:iam::111122223333:role/images", "session_name": "nightly"}
        auth = {"profile": None, "assume_role": arn if role else None}
        monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", lambda *_: aws_answer(status, body))
        monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
        with pytest.raises(failure) as raised, ec2_clients(ENVIRON, auth) as clients, explained("looking", failure):
            clients("us-east-1").describe_images(Owners=["self"])
        assert type(raised.value) is failure
        return raised.value

    return ask


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, PAGE, "200 with an HTML page: a proxy or filter stands between"),
        (200, TIDY_PAGE, "200 with an HTML page: a proxy or filter stands between"),
        (403, PAGE, "403 with an HTML page: a proxy or filter stands between"),
        (302, b"", "302 with an empty body: a proxy or filter stands between"),
        (403, b'{"blocked": true}', "403 with something that is not XML: a proxy or filter stands between"),
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


def test_a_page_instead_of_a_roles_credentials_is_told_of_too(asked: Callable[..., Any]) -> None:
    error = asked(403, PAGE, PublishError, role=True)
    assert error.message == (
        "looking: sts.us-east-1.amazonaws.com answered 403 with an HTML page: a proxy or filter stands between"
    )


def test_an_answer_that_is_cut_off_is_no_bug_of_imagegen(asked: Callable[..., Any]) -> None:
    error = asked(200, b"<DescribeImagesResponse><imagesSet>", RefusedError)
    assert error.message.startswith("looking: AWS' answer is cut off or not AWS': Unable to parse response")


def test_an_answer_of_ec2_goes_through(asked: Callable[..., Any]) -> None:
    assert asked(400, REFUSAL, RefusedError).message == "looking: InvalidAction: no"


@pytest.mark.parametrize("library", ["boto3", "botocore", "urllib3"])
def test_what_the_sdk_logs_goes_to_a_handler_of_its_own_and_not_to_standard_error(library: str) -> None:
    assert logging.getLogger(library).handlers
