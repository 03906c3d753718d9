"""What the errors of Azure's SDK mean for an operator: one message with what to do, and never a library's own lines."""

from __future__ import annotations

import contextlib
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import ConfigError, PublishError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

    from imagegen.errors import ImagegenError

_CREDENTIALS_HINT: Final = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET (or the same names with ARM_), "
    "or run where a managed identity or `az login` is; with targets.azure.auth.method cli, only `az login` counts"
)
# https://learn.microsoft.com/entra/identity-platform/reference-error-codes
_SIGN_IN_HINTS: Final = {
    "50076": "run `az login` again: the tenant asks for a second factor",
    "50173": "run `az login` again: the sign-in has expired",
    "53003": "ask the tenant's administrators: a conditional access policy blocks this sign-in",
    "700016": "check AZURE_CLIENT_ID and AZURE_TENANT_ID: this tenant has no such application",
    "700024": "get a new federated token: this one has expired",
    "700082": "run `az login` again: the sign-in has expired",
    "7000112": "enable the application in the tenant, or use another one",
    "7000215": "set the client secret's value, not its id: in AZURE_CLIENT_SECRET, or where client_secret_env says",
    "7000222": "create a new client secret for the application: this one has expired",
    "900023": "write the tenant's id or its domain into AZURE_TENANT_ID",
    "90002": "check AZURE_TENANT_ID: there is no such tenant",
}
_SIGN_IN: Final = re.compile(r"(AADSTS([0-9]+): .*?)(?:\.?\s+Trace ID|\.\s|\.?$)", re.MULTILINE)
# All that MSAL keeps of an answer that is no sign-in.
_SIGN_IN_STATUS: Final = re.compile(r"HTTP Error: ([0-9]{3})$", re.MULTILINE)
# A code of Azure's, or MSAL's words for a tenant that Azure does not know.
_REJECTED: Final = re.compile(r"AADSTS[0-9]+|rejects our request")
# Of `requests`, and MSAL's for an answer that it cannot read.
_BROKEN: Final = (OSError, ValueError, RuntimeError)
# What DefaultAzureCredential keeps of an attempt that broke off: no cause, only its words.
_IN_CHAIN: Final = re.compile(
    r"^(?:\s+\w+Credential: Authentication failed: (.*)"
    r"|(?:\s+\w+Credential|Authentication failed): (HTTPSConnection(?:Pool)?\(.*))$",
    re.MULTILINE,
)
_SIGN_IN_HOST: Final = "login.microsoftonline.com"
_NETWORK_HINT: Final = "check the network, and run it again"
_RERUN_HINT: Final = "run it again when the reason is gone"
# What may be answered to a request that succeeds when it is made again.
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
_OK: Final = 200
_LIBRARIES: Final = ("azure", "msal")


class NotAzureError(Exception):
    """An answer that Azure cannot have given: a proxy, a web filter or a gateway answered in its place."""

    def __init__(self, host: str, status: int, reason: str, kind: str) -> None:
        super().__init__(f"{host} answered {status}{f' {reason}' if reason else ''} with {kind} instead of JSON")
        self.host = host
        self.status = status


def silence_libraries() -> None:
    """Keep the libraries' warnings and tracebacks off standard error: `explained` says the same, once."""
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        # Python prints what no handler takes; whoever sets up logging still gets it all.
        if not any(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            logger.addHandler(logging.NullHandler())


def refuse_web_page(answered: Any) -> None:  # noqa: ANN401 - a PipelineResponse of one of the SDK's two kinds
    """A hook for every response: the SDK takes a web page with status 200 for JSON, and fails with a traceback."""
    response = answered.http_response
    # A machine's metadata service has no TLS: whoever answers there is no identity, and the next one is tried.
    is_api = str(response.request.url).startswith("https://")
    # For the others the SDK raises its own error, after retries where they may pass.
    if is_api and response.status_code < 400 and _is_not_json(response):
        raise _not_azure(response, _media_type(response))
    if is_api and response.status_code == _OK and response.request.method == "GET" and not response.content:
        raise _not_azure(response, "an empty body")


def is_passing(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    from azure.core import exceptions as sdk

    if isinstance(error, sdk.ClientAuthenticationError):
        # A token ends before a long wait does, and a new one is asked for.
        status = _SIGN_IN_STATUS.search(str(error))
        return (status is not None and int(status[1]) in _PASSING) or is_unanswered(error)
    if isinstance(error, sdk.HttpResponseError):
        return error.status_code in _PASSING
    return isinstance(error, sdk.ServiceRequestError | sdk.ServiceResponseError)


def is_answer_of_azure(error: BaseException | None) -> bool:
    """Whether Azure knew who asks and answered: another question may be answered otherwise."""
    from azure.core import exceptions as sdk

    return isinstance(error, sdk.HttpResponseError) and not isinstance(error, sdk.ClientAuthenticationError)


def is_unanswered(error: ClientAuthenticationError) -> bool:
    """Whether the sign-in broke off: the SDK wraps that as if the credentials were at fault."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError
    from azure.identity import CredentialUnavailableError

    causes = list(_causes(error))
    # Where there is nothing to sign in with, nobody was asked.
    if isinstance(error, CredentialUnavailableError) or any(_REJECTED.search(str(cause)) for cause in causes):
        return False
    broken = (each for each in causes if isinstance(each, (*_BROKEN, AzureError)))
    return any(not isinstance(each, ClientAuthenticationError) for each in broken) or bool(_IN_CHAIN.search(str(error)))


@contextlib.contextmanager
def explained(doing: str, failure: type[ImagegenError], *, missing: str = "") -> Iterator[None]:
    """Errors of the SDK as errors to act on: `failure`, or ConfigError where the credentials are at fault.

    Whoever publishes had credentials that were accepted: what goes wrong with them then is publishing's failure.
    `missing` says what is wrong with the config when Azure answers 404; without it that is a `failure` as any other.
    """
    from azure.core import exceptions as sdk

    try:
        yield
    except NotAzureError as error:
        raise _intercepted(doing, error, failure) from error
    except sdk.ClientAuthenticationError as error:
        raise _not_signed_in(doing, error, failure) from error
    except sdk.HttpResponseError as error:
        raise _from_answer(doing, error, failure, missing) from error
    except sdk.AzureError as error:
        raise failure(f"{doing}: {_first_line(error)}", hint=_NETWORK_HINT, details=_notes(error)) from error


def _not_signed_in(doing: str, error: ClientAuthenticationError, failure: type[ImagegenError]) -> ImagegenError:
    for cause in _causes(error):
        if isinstance(cause, NotAzureError):
            return _intercepted(doing, cause, failure)
    text = str(error)
    status = _SIGN_IN_STATUS.search(text)
    if status is not None:
        return failure(
            f"{doing}: {_SIGN_IN_HOST} answered {status[1]} to the sign-in", hint=_RERUN_HINT, details=_notes(error)
        )
    if is_unanswered(error):
        tried = _IN_CHAIN.search(text)
        reason = tried[1] or tried[2] if tried else _first_line(error).removeprefix("Authentication failed: ")
        return failure(f"{doing}: {_SIGN_IN_HOST}: {reason}", hint=_NETWORK_HINT, details=_notes(error))
    told = _SIGN_IN.search(text)
    reason = told[1] if told else _first_line(error).removeprefix("Authentication failed: ")
    hint = _SIGN_IN_HINTS.get(told[2], _CREDENTIALS_HINT) if told else _CREDENTIALS_HINT
    unusable = failure if issubclass(failure, PublishError) else ConfigError
    return unusable(f"{doing}: no usable Azure credentials: {reason}", hint=hint, details=_notes(error))


def _from_answer(doing: str, error: HttpResponseError, failure: type[ImagegenError], missing: str) -> ImagegenError:
    from azure.core.exceptions import DecodeError

    if error.response is not None and (_is_not_json(error.response) or isinstance(error, DecodeError)):
        kind = "a broken body" if isinstance(error, DecodeError) else _media_type(error.response)
        return _intercepted(doing, _not_azure(error.response, kind), failure, _notes(error))
    answered = getattr(error.response, "headers", None) or {}
    details = (f"request id: {answered.get('x-ms-request-id', 'unknown')}", *_notes(error))
    code = error.error.code if error.error is not None and error.error.code else str(error.status_code)
    reason = error.error.message if error.error is not None and error.error.message else _first_line(error)
    if error.status_code == 404 and missing:
        return ConfigError(f"{doing}: {code}", hint=missing, details=details)
    return failure(
        f"{doing}: {code}: {reason}",
        hint="give these credentials a role that allows it, and run it again"
        if error.status_code == 403
        else _RERUN_HINT,
        details=details,
    )


def _intercepted(
    doing: str, error: NotAzureError, failure: type[ImagegenError], details: tuple[str, ...] = ()
) -> ImagegenError:
    if error.status in _PASSING:
        hint = _RERUN_HINT
    else:
        hint = f"let this machine reach {error.host}: a proxy (HTTPS_PROXY) or a web filter answers in its place"
    return failure(f"{doing}: {error}", hint=hint, details=details)


def _not_azure(response: Any, kind: str) -> NotAzureError:  # noqa: ANN401 - as above
    return NotAzureError(_host(response), response.status_code, response.reason or "", kind)


def _is_not_json(response: Any) -> bool:  # noqa: ANN401 - as above
    kind = _media_type(response)
    return bool(kind) and "json" not in kind and response.headers.get("Content-Length") != "0"


def _media_type(response: Any) -> str:  # noqa: ANN401 - as above
    return str(response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()


def _host(response: Any) -> str:  # noqa: ANN401 - as above
    return str(response.request.url).partition("://")[2].partition("/")[0]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from or while handling: the SDK wraps every error of a sign-in in its own."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _notes(error: Exception) -> tuple[str, ...]:
    return tuple(getattr(error, "__notes__", ()))


def _first_line(error: Exception) -> str:
    # The SDK's messages go on with advice for programmers.
    return next(iter(str(error).splitlines()), type(error).__name__)
