"""Turns errors of Azure's SDK into one message with a hint, and silences the logs of its libraries."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError, ImagegenError, PublishError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

_CREDENTIALS_HINT: Final = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET (or the same names with ARM_), "
    "or use a managed identity or `az login`; with targets.azure.auth.method cli, only `az login` is used"
)
# https://learn.microsoft.com/entra/identity-platform/reference-error-codes
_SIGN_IN_HINTS: Final = {
    "50076": "run `az login` again: the tenant requires a second factor",
    "50173": "run `az login` again: the sign-in has expired",
    "53003": "ask the tenant's administrators: a conditional access policy blocks this sign-in",
    "700016": "check AZURE_CLIENT_ID and AZURE_TENANT_ID: this tenant has no such application",
    "700024": "get a new federated token: this one has expired",
    "700082": "run `az login` again: the sign-in has expired",
    "7000112": "enable the application in the tenant, or use another one",
    "7000215": "set the client secret's value, not its id: in AZURE_CLIENT_SECRET or client_secret_env's variable",
    "7000222": "create a new client secret for the application: this one has expired",
    "900023": "write the tenant's id or its domain into AZURE_TENANT_ID",
    "90002": "check AZURE_TENANT_ID: there is no such tenant",
}
_SIGN_IN: Final = re.compile(r"(AADSTS([0-9]+): .*?)(?:\.?\s+Trace ID|\.\s|\.?$)", re.MULTILINE)
# The whole error of MSAL for an answer that it does not expect.
_SIGN_IN_STATUS: Final = re.compile(r"HTTP Error: ([0-9]{3})$", re.MULTILINE)
# DefaultAzureCredential keeps only the text of a broken connection, not its exception.
_IN_CHAIN: Final = re.compile(
    r"^(?:\s+\w+Credential: Authentication failed: (.*)"
    r"|(?:\s+\w+Credential|Authentication failed): (HTTPSConnection(?:Pool)?\(.*))$",
    re.MULTILINE,
)
_SIGN_IN_HOST: Final = "login.microsoftonline.com"
_NETWORK_HINT: Final = "check the network, then run it again"
_RERUN_HINT: Final = "run it again when the cause is gone"
# The statuses of transient errors.
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})


class NotAzureError(Exception):
    """A proxy, a web filter or a gateway answered instead of Azure."""

    def __init__(self, response: Any, kind: str, wanted: str = "JSON") -> None:  # noqa: ANN401 - of one of the SDK's two kinds
        self.host = str(response.request.url).partition("://")[2].partition("/")[0]
        self.status = response.status_code
        reason = f" {response.reason}" if response.reason else ""
        super().__init__(f"{self.host} answered {self.status}{reason} with {kind} instead of {wanted}")


def silence_libraries() -> None:
    """Keep warnings and tracebacks of the libraries off standard error: `explain_errors` reports them once."""
    for name in ("azure", "msal"):
        logger = logging.getLogger(name)
        # Python prints records without a handler. Applications that configure logging still get all records.
        if not any(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            logger.addHandler(logging.NullHandler())


def reject_web_page(pipeline_response: Any) -> None:  # noqa: ANN401 - as above, in a PipelineResponse
    """Reject web pages with a hook for every response, because the SDK would parse them as JSON and crash."""
    response = pipeline_response.http_response
    # The metadata service uses http: after an invalid answer the SDK tries the next credential.
    is_api = str(response.request.url).startswith("https://")
    # For other statuses the SDK raises its own error, after retries of transient ones.
    if is_api and response.status_code < 400 and _is_not_json(response):
        raise NotAzureError(response, _media_type(response))
    if is_api and response.status_code == 200 and response.request.method == "GET" and not response.content:
        raise NotAzureError(response, "an empty body")


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    from azure.core import exceptions as sdk

    if isinstance(error, sdk.ClientAuthenticationError):
        # During a long wait a token expires, and the SDK requests another.
        status = _SIGN_IN_STATUS.search(str(error))
        return (status is not None and int(status[1]) in _TRANSIENT) or is_broken_off(error)
    if isinstance(error, sdk.HttpResponseError):
        return error.status_code in _TRANSIENT
    return isinstance(error, sdk.ServiceRequestError | sdk.ServiceResponseError)


def is_answer_from_azure(error: BaseException | None) -> bool:
    """Whether Azure accepted the credentials and answered with the error, so that other requests may succeed."""
    from azure.core import exceptions as sdk

    return isinstance(error, sdk.HttpResponseError) and not isinstance(error, sdk.ClientAuthenticationError)


def is_broken_off(error: ClientAuthenticationError) -> bool:
    """Whether the connection of a sign-in broke: the SDK reports that as an authentication error."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError
    from azure.identity import CredentialUnavailableError

    causes = list(_causes(error))
    # Without any credential there was no request. Azure rejects with a code; MSAL has a text for an unknown tenant.
    if isinstance(error, CredentialUnavailableError) or any(
        re.search(r"AADSTS[0-9]+|rejects our request", str(cause)) for cause in causes
    ):
        return False
    # Errors of `requests`, and of MSAL for an answer that it cannot parse.
    broken = (OSError, ValueError, RuntimeError, AzureError)
    return _IN_CHAIN.search(str(error)) is not None or any(
        isinstance(cause, broken) and not isinstance(cause, ClientAuthenticationError) for cause in causes
    )


@contextlib.contextmanager
def explain_errors(doing: str, failure: type[ImagegenError], *, missing: str = "") -> Iterator[None]:
    """Turn errors of the SDK into `failure` with a hint, or into ConfigError where the credentials are invalid.

    A PublishError stays one, because credentials that publish an image were valid before. Instead of a RefusedError, a
    transient error becomes an UnavailableError. `missing` is the hint of a ConfigError for status 404; without it, that
    is a `failure` too.
    """
    from azure.core import exceptions as sdk

    def kind(error: Exception) -> type[ImagegenError]:
        return UnavailableError if failure is RefusedError and is_transient(error) else failure

    try:
        yield
    except NotAzureError as error:
        raise _intercepted(doing, error, failure) from error
    except sdk.ClientAuthenticationError as error:
        raise _not_signed_in(doing, error, kind(error)) from error
    except sdk.HttpResponseError as error:
        raise _from_answer(doing, error, kind(error), missing) from error
    except sdk.AzureError as error:
        raise kind(error)(f"{doing}: {first_line(error)}", hint=_NETWORK_HINT, details=_notes(error)) from error


def _not_signed_in(doing: str, error: ClientAuthenticationError, failure: type[ImagegenError]) -> ImagegenError:
    if page := next((cause for cause in _causes(error) if isinstance(cause, NotAzureError)), None):
        return _intercepted(doing, page, failure)
    text = str(error)
    if status := _SIGN_IN_STATUS.search(text):
        return failure(
            f"{doing}: {_SIGN_IN_HOST} answered {status[1]} to the sign-in", hint=_RERUN_HINT, details=_notes(error)
        )
    if is_broken_off(error):
        attempt = _IN_CHAIN.search(text)
        reason = attempt[1] or attempt[2] if attempt else first_line(error).removeprefix("Authentication failed: ")
        return failure(f"{doing}: {_SIGN_IN_HOST}: {reason}", hint=_NETWORK_HINT, details=_notes(error))
    answer = _SIGN_IN.search(text)
    reason = answer[1] if answer else first_line(error).removeprefix("Authentication failed: ")
    hint = _SIGN_IN_HINTS.get(answer[2], _CREDENTIALS_HINT) if answer else _CREDENTIALS_HINT
    unusable = failure if issubclass(failure, PublishError) else ConfigError
    return unusable(f"{doing}: no usable Azure credentials: {reason}", hint=hint, details=_notes(error))


def _from_answer(doing: str, error: HttpResponseError, failure: type[ImagegenError], missing: str) -> ImagegenError:
    from azure.core.exceptions import DecodeError

    if error.response is not None and (_is_not_json(error.response) or isinstance(error, DecodeError)):
        kind = "a broken body" if isinstance(error, DecodeError) else _media_type(error.response)
        return _intercepted(doing, NotAzureError(error.response, kind), failure, _notes(error))
    headers = getattr(error.response, "headers", None) or {}
    details = (f"request id: {headers.get('x-ms-request-id', 'unknown')}", *_notes(error))
    answer = error.error
    code = answer.code if answer is not None and answer.code else str(error.status_code)
    reason = answer.message if answer is not None and answer.message else first_line(error)
    if error.status_code == 404 and missing:
        return ConfigError(f"{doing}: {code}", hint=missing, details=details)
    return failure(
        f"{doing}: {code}: {reason}",
        hint="give these credentials a role that allows it, then run it again"
        if error.status_code == 403
        else _RERUN_HINT,
        details=details,
    )


def _intercepted(
    doing: str, error: NotAzureError, failure: type[ImagegenError], details: tuple[str, ...] = ()
) -> ImagegenError:
    return failure(
        f"{doing}: {error}",
        hint=_RERUN_HINT
        if error.status in _TRANSIENT
        else f"allow access to {error.host}: a proxy (HTTPS_PROXY) or a web filter answers instead",
        details=details,
    )


def _is_not_json(response: Any) -> bool:  # noqa: ANN401 - as above
    kind = _media_type(response)
    return bool(kind) and "json" not in kind and response.headers.get("Content-Length") != "0"


def _media_type(response: Any) -> str:  # noqa: ANN401 - as above
    return str(response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes: the SDK wraps every error of a sign-in in its own."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _notes(error: Exception) -> tuple[str, ...]:
    return tuple(getattr(error, "__notes__", ()))


def first_line(error: Exception) -> str:
    """The first line of an error of the SDK: further lines are for programmers."""
    return next(iter(str(error).splitlines()), type(error).__name__)
