"""Which errors of the SDK are waited out, and which end what was being done."""

from __future__ import annotations

import ssl
from typing import Any

import botocore.exceptions as sdk
import pytest

from imagegen.providers.aws.faults import is_transient

URL = {"endpoint_url": "https://ec2.us-east-1.amazonaws.com/"}


def answered(code: str, status: int) -> sdk.ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return sdk.ClientError(answer, "DescribeImages")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (answered("InternalError", 500), True),
        (answered("whatever a proxy says", 502), True),
        (answered("Throttling", 400), True),
        (answered("whatever a proxy says", 429), True),
        (answered("UnauthorizedOperation", 403), False),
        (answered("InvalidParameterValue", 400), False),
        (sdk.ConnectionClosedError(**URL), True),
        (sdk.ReadTimeoutError(**URL), True),
        (sdk.ConnectTimeoutError(**URL), True),
        (sdk.EndpointConnectionError(**URL), True),
        (sdk.SSLError(**URL, error=ssl.SSLError("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred")), True),
        (sdk.SSLError(**URL, error=ssl.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")), False),
        (sdk.NoCredentialsError(), False),
        (ValueError("a bug"), False),
    ],
    ids=str,
)
def test_what_passes(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes
