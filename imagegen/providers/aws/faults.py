"""Classifies errors of the SDK."""

import socket
from collections.abc import Iterator

# EC2 returns the first ones with status 503; they are transient with any status.
_PASSING_CODES = frozenset(
    {
        *("RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException", "RequestThrottled"),
        *("InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "RequestTimeout"),
    }
)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later: after throttling, an error inside AWS, or a broken connection."""
    import botocore.exceptions as sdk

    if isinstance(error, sdk.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or status == 429 or error_code(error) in _PASSING_CODES
    if isinstance(error, sdk.SSLError):
        # An untrusted certificate is permanent; other TLS errors are broken connections.
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)
    return isinstance(error, (sdk.ConnectionError, sdk.HTTPClientError))


def is_answer_from_aws(error: BaseException | None) -> bool:
    """Whether AWS itself answered with the error, so that other requests may succeed."""
    import botocore.exceptions as sdk

    return isinstance(error, sdk.ClientError)


def error_code(error: Exception) -> str:
    """The error code of AWS; empty for other errors."""
    import botocore.exceptions as sdk

    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, sdk.ClientError) else ""


def is_unknown_host(error: BaseException) -> bool:
    """Whether the host of the endpoint does not exist, usually because the region does not exist."""
    return any(isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
