"""Which errors of the SDK pass by themselves."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# EC2 gives the first ones with status 503; they count under any status.
_PASSING_CODES = frozenset(
    {
        *("RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException", "RequestThrottled"),
        *("InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "RequestTimeout"),
    }
)


def may_pass(error: Exception) -> bool:
    """Throttling, an error of AWS' own, a connection that broke: the same request may succeed a minute later."""
    import botocore.exceptions as sdk

    if isinstance(error, sdk.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or status == 429 or error_code(error) in _PASSING_CODES
    if isinstance(error, sdk.SSLError):
        # A certificate that is not trusted stays so; any other trouble of TLS is a connection that broke.
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)
    return isinstance(error, (sdk.ConnectionError, sdk.HTTPClientError))


def is_answer_of_aws(error: BaseException | None) -> bool:
    """Whether AWS itself answered: another question may be answered otherwise."""
    import botocore.exceptions as sdk

    return isinstance(error, sdk.ClientError)


def error_code(error: Exception) -> str:
    """EC2's code; empty for what is no answer of EC2."""
    import botocore.exceptions as sdk

    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, sdk.ClientError) else ""


def is_unknown_host(error: BaseException) -> bool:
    """The endpoint's name does not exist: nor does the region, unless whoever resolves names here is at fault."""
    return any(isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
