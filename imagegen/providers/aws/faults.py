"""Classifies errors of the SDK, and explains them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imagegen.base.errors import ConfigError, ImagegenError, PublishError, RefusedError, UnavailableError
from imagegen.providers.aws.client import PageError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

# EC2 returns the first ones with status 503; they are transient with any status.
_PASSING_CODES = frozenset(
    {
        *("RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException", "RequestThrottled"),
        *("InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "RequestTimeout"),
    }
)
_REJECTED = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_FORBIDDEN = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_CREDENTIALS_HINT = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), "
    "or run where AWS provides a role"
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


def is_unknown_host(error: BaseException | None) -> bool:
    """Whether the host of the endpoint does not exist, usually because the region does not exist."""
    while error is not None:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def explain_errors(
    doing: str, failure: type[ImagegenError], *, copied_to: str = "", service: str = "ec2"
) -> Iterator[None]:
    """Turn errors of the SDK into `failure` with a hint, or into ConfigError where the credentials are invalid.

    A PublishError stays one, because credentials that publish an image were valid before. Instead of a RefusedError, a
    transient error becomes an UnavailableError. `copied_to` is the region of a copy, which the account may not have
    enabled; `service` is the name of the service in permissions.
    """
    import botocore.exceptions as sdk
    from botocore.parsers import ResponseParserError

    unusable = failure if issubclass(failure, PublishError) else ConfigError
    try:
        yield
    except sdk.ClientError as error:
        raise _from_answer(doing, error, _kind(failure, error), unusable, copied_to, service) from error
    except (
        sdk.NoCredentialsError,
        sdk.PartialCredentialsError,
        sdk.CredentialRetrievalError,
        sdk.ProfileNotFound,
        sdk.SSOError,
        sdk.TokenRetrievalError,
    ) as error:
        raise unusable(f"{doing}: no usable AWS credentials: {error}", hint=_CREDENTIALS_HINT) from error
    except sdk.BotoCoreError as error:
        hint = "check the network and the region, then run it again"
        if copied_to and is_unknown_host(error):
            hint = f"check that AWS has a region {copied_to}, {_without(copied_to)}"
        raise _kind(failure, error)(f"{doing}: {error}", hint=hint, details=_notes(error)) from error
    except PageError as error:
        hint = f"allow access to {error.host}, or set HTTPS_PROXY to a proxy that allows it; then run it again"
        raise failure(f"{doing}: {error}", hint=hint) from error
    except ResponseParserError as error:
        message = f"{doing}: the answer is truncated or not from AWS: {str(error).partition(chr(10))[0]}"
        raise failure(message, hint="run it again") from error


def _kind(failure: type[ImagegenError], error: Exception) -> type[ImagegenError]:
    passes = is_transient(error) and not is_unknown_host(error)
    return UnavailableError if failure is RefusedError and passes else failure


def _from_answer(
    doing: str,
    error: ClientError,
    failure: type[ImagegenError],
    unusable: type[ImagegenError],
    copied_to: str,
    service: str,
) -> ImagegenError:
    code, message = error_code(error), error.response.get("Error", {}).get("Message", "")
    details = (f"request id: {error.response.get('ResponseMetadata', {}).get('RequestId', 'unknown')}", *_notes(error))
    # The second is the error of a region that the account has not enabled; some regions reject the credentials instead.
    if code in _REJECTED or (copied_to and code == "OptInRequired"):
        return unusable(
            f"{doing}: AWS rejects the credentials: {code}",
            hint=_hint_about_credentials(code, copied_to),
            details=details,
        )
    # The encoded message that follows has kilobytes.
    reason = message.partition("Encoded authorization failure message")[0].strip()
    if code in _FORBIDDEN:
        permission = f"{'sts' if error.operation_name == 'AssumeRole' else service}:{error.operation_name}"
        hint = f"allow {permission} for these credentials, then run it again"
    else:
        hint = "run it again when the cause is gone"
    return failure(": ".join(part for part in (doing, code, reason) if part), hint=hint, details=details)


def _hint_about_credentials(code: str, copied_to: str) -> str:
    if code in ("ExpiredToken", "RequestExpired"):
        return "renew the credentials, then run it again: finished work is kept"
    if not copied_to:
        return f"{_CREDENTIALS_HINT}; and check that the account has enabled the region"
    command = f"aws account enable-region --region-name {copied_to}"
    return f"enable the region for the account (`{command}`, which takes minutes), {_without(copied_to)}"


def _without(region: str) -> str:
    return f"or leave {region} out of targets.aws.publish.regions. Then run it again: finished copies are kept"


def _notes(error: BaseException) -> tuple[str, ...]:
    return tuple(getattr(error, "__notes__", ()))
