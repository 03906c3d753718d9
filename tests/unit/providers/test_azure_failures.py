"""What an operator reads when Azure, or whoever answers in its place, says no."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import re
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

# Here, because its import asks `uname`, which code under test may not.
import azure.identity
import pytest
import requests
from azure.core import exceptions as sdk

from imagegen.base.errors import ConfigError, ExitCode, ImagegenError, PublishError, RefusedError
from imagegen.providers.azure import client, failures
from imagegen.providers.azure.client import resource_manager
from imagegen.providers.azure.gallery import Definition
from imagegen.providers.azure.settings import Auth
from imagegen.providers.checks import UNKNOWN, Check, run_check

if TYPE_CHECKING:
    from collections.abc import Callable

TENANT = "11111111-1111-4111-8111-111111111111"
LOGIN, ARM = "login.microsoftonline.com", "management.azure.com"
ENVIRON = {
    "AZURE_TENANT_ID": TENANT,
    "AZURE_CLIENT_ID": "c",
    "AZURE_CLIENT_SECRET": "s",
    "AZURE_SUBSCRIPTION_ID": "sub",
}
AUTH = Auth()
PAGE = (b"<html><title>Blocked</title></html>", "text/html; charset=utf-8")
BROKEN = (PAGE[0], "application/json")
EMPTY = (b"", "application/json")
BASE = f"https://{LOGIN}/{TENANT}"
DISCOVERY = {"authorization_endpoint": f"{BASE}/a", "token_endpoint": f"{BASE}/token", "issuer": f"{BASE}/v2.0"}
WRONG_SECRET = {
    "error": "invalid_client",
    "error_description": "AADSTS7000215: Invalid client secret provided. Ensure that it is the value. Trace ID: 9",
}

Answer = tuple[int, str, bytes, str]


def of_json(value: object) -> tuple[bytes, str]:
    return json.dumps(value).encode(), "application/json"


TOKEN = (200, "OK", *of_json({"access_token": "a.b.c", "expires_in": 3600, "token_type": "Bearer"}))


def response(status: int, reason: str, body: bytes, kind: str, url: str) -> requests.Response:
    made = requests.Response()
    made.status_code, made.reason, made.url = status, reason, url
    made.headers["Content-Type"] = kind
    made.raw = io.BytesIO(body)
    return made


def answered_by(
    monkeypatch: pytest.MonkeyPatch,
    *,
    login: tuple[Any, ...] = TOKEN,
    arm: tuple[Any, ...] = TOKEN,
    after: Callable[[], object] = lambda: None,
    limits: list[Any] | None = None,
) -> list[str]:
    """Who answers in place of the network: for a token, and for everything below management.azure.com.

    An answer may end with headers of its own; `after` each, something happens; `limits` are what is waited for at most.
    """
    asked: list[str] = []

    def request(_: object, method: str, url: str, **named: Any) -> requests.Response:  # noqa: ANN401 - as requests has them
        asked.append(f"{method} {url.partition('://')[2].partition('/')[0]}")
        after()
        if ARM in url:
            (limits if limits is not None else []).append(named["timeout"])
            return made_of(arm, url)
        if (login[0] == 200 and login is not TOKEN) or url.endswith("/token"):
            return made_of(login, url)
        found = DISCOVERY if "openid-configuration" in url else {"tenant_discovery_endpoint": "x", "metadata": []}
        return response(200, "OK", *of_json(found), url)

    monkeypatch.setattr(requests.Session, "request", request)
    return asked


def made_of(answer: tuple[Any, ...], url: str) -> requests.Response:
    status, reason, body, kind, *headers = answer
    made = response(status, reason, body, kind, url)
    for each in headers:
        made.headers.update(each)
    return made


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """As `answered_by`, without pauses."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return functools.partial(answered_by, monkeypatch)


REACH = "allow access to"
AGAIN = "run it again"


@pytest.mark.parametrize(
    ("answers", "kind", "message", "hint", "looks"),
    [
        (
            {"arm": (502, "Bad Gateway", *PAGE)},
            RefusedError,
            f"{ARM} answered 502 Bad Gateway with text/html",
            AGAIN,
            4,
        ),
        ({"arm": (200, "OK", *PAGE)}, RefusedError, f"{ARM} answered 200 OK with text/html", f"{REACH} {ARM}", 1),
        ({"arm": (403, "No", *PAGE)}, RefusedError, f"{ARM} answered 403 No with text/html", f"{REACH} {ARM}", 1),
        ({"arm": (200, "OK", *BROKEN)}, RefusedError, f"{ARM} answered 200 OK with a broken body", REACH, 1),
        ({"arm": (200, "OK", *EMPTY)}, RefusedError, f"{ARM} answered 200 OK with an empty body", f"{REACH} {ARM}", 1),
        ({"login": (200, "OK", *PAGE)}, RefusedError, f"{LOGIN} answered 200 OK with text/html", f"{REACH} {LOGIN}", 0),
        ({"login": (502, "Bad Gateway", *PAGE)}, RefusedError, f"{LOGIN} answered 502 to the sign-in", AGAIN, 0),
        (
            {"login": (401, "", *of_json(WRONG_SECRET))},
            ConfigError,
            "no usable Azure credentials: AADSTS7000215: Invalid client secret provided",
            "set the client secret's value",
            0,
        ),
    ],
    ids=["502", "page", "403-page", "broken", "empty", "login-page", "login-502", "wrong-secret"],
)
def test_who_answered_what_is_said_once(
    answers: dict[str, Answer],
    kind: type[Exception],
    message: str,
    hint: str,
    looks: int,
    answer: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = answer(**answers)
    # pytest's own handlers would take what Python otherwise prints.
    monkeypatch.setattr(logging.root, "handlers", [])
    with pytest.raises(kind) as raised, client.compute(ENVIRON, AUTH) as compute:
        Definition("images", "gal", "def").versions(compute)
    shown: Any = raised.value
    assert message in shown.message
    assert hint in shown.hint
    assert "\n" not in shown.message
    assert shown.message.count("AADSTS") <= 1
    assert asked.count(f"GET {ARM}") == looks
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "value", "auth"),
    [
        ("AZURE_TENANT_ID", "my tenant", AUTH),
        ("AZURE_TENANT_ID", f"{TENANT}\n", AUTH),
        ("AZURE_CLIENT_ID", "c\n", AUTH),
        ("AZURE_SUBSCRIPTION_ID", "sub\n", AUTH),
        ("AZURE_SUBSCRIPTION_ID", "my subscription", Auth(method="cli")),
        ("AZURE_AUTHORITY_HOST", "http://x", AUTH),
        ("AZURE_AUTHORITY_HOST", "https://", AUTH),
    ],
)
@pytest.mark.parametrize("make", [client.compute, resource_manager])
def test_a_variable_that_the_sdk_does_not_take_is_named(
    make: Callable[..., Any], name: str, value: str, auth: Auth
) -> None:
    with pytest.raises(ConfigError, match=f"^{name}=") as raised, make({**ENVIRON, name: value}, auth):
        pytest.fail("it was taken")
    assert raised.value.hint == f"correct {name}, or unset it"


def test_the_tenant_is_named_by_the_family_that_says_it() -> None:
    environ = {name.replace("AZURE", "ARM"): value for name, value in ENVIRON.items()} | {"ARM_TENANT_ID": "my tenant"}
    with pytest.raises(ConfigError, match=r"^ARM_TENANT_ID="), client.compute(environ, AUTH):
        pytest.fail("it was taken")


def test_a_certificate_that_is_not_there_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {**ENVIRON, "AZURE_CLIENT_CERTIFICATE_PATH": "/nowhere.pem"}
    del environ["AZURE_CLIENT_SECRET"]
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="AZURE_CLIENT_CERTIFICATE_PATH"), client.compute(environ, AUTH):
        pytest.fail("it was taken")


UNRESOLVED = f"HTTPSConnection(host='{LOGIN}', port=443): Failed to resolve '{LOGIN}' ([Errno -2] Name not known)"


@pytest.mark.parametrize("reason", [UNRESOLVED, "('Connection aborted.', RemoteDisconnected('closed'))"])
def test_no_connection_to_the_sign_in_is_told_as_one(
    reason: str, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., list[str]]
) -> None:
    answer()

    def request(*_: object, **_named: object) -> requests.Response:
        raise requests.ConnectionError(reason)

    monkeypatch.setattr(requests.Session, "request", request)
    with (
        pytest.raises(RefusedError, match=re.escape(f"{LOGIN}: {reason}")) as raised,
        client.compute(ENVIRON, AUTH) as compute,
    ):
        Definition("images", "gal", "def").versions(compute)
    assert "AZURE_TENANT_ID" not in raised.value.hint
    assert raised.value.hint.startswith("check the network")


def test_no_connection_is_found_in_what_a_chain_of_credentials_says() -> None:
    text = f"DefaultAzureCredential failed.\nAttempted:\n\tWorkloadIdentityCredential: {UNRESOLVED}\nTo mitigate, read"
    with pytest.raises(RefusedError) as raised, failures.explain_errors("doing", RefusedError):
        raise sdk.ClientAuthenticationError(message=text)
    assert raised.value.message == f"doing: {LOGIN}: {UNRESOLVED}"


@pytest.mark.parametrize(("url", "refused"), [(f"https://{ARM}/x", True), ("http://169.254.169.254/metadata", False)])
def test_who_answers_for_the_metadata_service_is_not_asked_for_json(url: str, refused: bool) -> None:
    request = SimpleNamespace(url=url)
    headers = {"Content-Type": "text/html"}
    page = SimpleNamespace(status_code=200, reason="OK", headers=headers, request=request)
    with pytest.raises(failures.NotAzureError) if refused else contextlib.nullcontext():
        failures.reject_web_page(SimpleNamespace(http_response=page))


def broken_off(cause: BaseException, message: str = "") -> sdk.ClientAuthenticationError:
    """As the SDK wraps whatever happens while it signs in."""
    error = sdk.ClientAuthenticationError(message=message or f"Authentication failed: {cause}")
    error.__cause__ = cause
    return error


def unknown_tenant() -> sdk.ClientAuthenticationError:
    """As MSAL tells it: its last words say nothing of Azure's answer."""
    told = ValueError("Unable to get authority configuration for https://login.microsoftonline.com/x.")
    told.__context__ = ValueError("OIDC Discovery endpoint rejects our request. Error: {'error': 'invalid_tenant'}")
    return broken_off(told)


def no_cli() -> sdk.ClientAuthenticationError:
    error = azure.identity.CredentialUnavailableError(message="Azure CLI not found on path")
    error.__cause__ = FileNotFoundError("az")
    return error


CHAIN = "DefaultAzureCredential failed to retrieve a token.\nAttempted:\n\t"
UNANSWERED = [
    broken_off(sdk.ServiceRequestError("Connection reset by peer")),
    broken_off(sdk.ServiceResponseError("Connection aborted")),
    broken_off(sdk.DecodeError("JSON is invalid: Unterminated string")),
    broken_off(requests.exceptions.ConnectionError("Connection reset by peer")),
    # MSAL's, for an empty answer and for one that is cut off.
    broken_off(json.JSONDecodeError("Expecting value", "", 0)),
    broken_off(ValueError("Unable to get authority configuration for https://login.microsoftonline.com/x.")),
    sdk.ClientAuthenticationError(message=f"{CHAIN}WorkloadIdentityCredential: Authentication failed: no route"),
]
ANSWERED = [
    sdk.ClientAuthenticationError(message=f"{CHAIN}AzureCliCredential: Azure CLI not found on path"),
    broken_off(ValueError("OIDC Discovery endpoint rejects our request. Error: AADSTS90002: Tenant not found.")),
    broken_off(sdk.ServiceRequestError("no route"), "Authentication failed: AADSTS7000222: It has expired."),
    unknown_tenant(),
    no_cli(),
]


@pytest.mark.parametrize("error", UNANSWERED)
def test_a_connection_that_breaks_while_signing_in_says_nothing_of_the_credentials(
    error: sdk.ClientAuthenticationError,
) -> None:
    def look() -> list[Check]:
        with failures.explain_errors("signing in", RefusedError):
            raise error

    [check] = run_check("sign-in", look)
    assert (check.verdict, check.hint) == (UNKNOWN, "check the network, then run it again")
    assert "redential" not in check.message
    assert "\n" not in check.message
    assert failures.is_transient(error)


@pytest.mark.parametrize("error", ANSWERED)
def test_credentials_that_are_missing_or_rejected_are_wrong(error: sdk.ClientAuthenticationError) -> None:
    with (
        pytest.raises(ConfigError, match="no usable Azure credentials"),
        failures.explain_errors("asking", RefusedError),
    ):
        raise error
    assert not failures.is_transient(error)


def test_an_expired_sign_in_says_how_to_renew_it() -> None:
    text = "DefaultAzureCredential failed.\nAttempted:\n\tAzureCliCredential: AADSTS700082: It has expired. Trace ID: 1"
    expected = r"credentials: AADSTS700082: It has expired\Z"
    with pytest.raises(ConfigError, match=expected) as raised, failures.explain_errors("doing", RefusedError):
        raise sdk.ClientAuthenticationError(message=text)
    assert raised.value.hint == "run `az login` again: the sign-in has expired"


WEB_PAGE = SimpleNamespace(status_code=200, reason="OK", request=SimpleNamespace(url=f"https://{ARM}/x"))


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (sdk.ServiceRequestError("no route"), True),
        (sdk.ServiceResponseError("cut off"), True),
        (sdk.ClientAuthenticationError("who"), False),
        (sdk.ClientAuthenticationError("Authentication failed: HTTP Error: 503"), True),
        (sdk.ClientAuthenticationError(f"Authentication failed: {UNRESOLVED}"), True),
        (failures.NotAzureError(WEB_PAGE, "text/html"), False),
        (TimeoutError(), False),
    ],
)
def test_what_may_pass(error: Exception, passing: bool) -> None:
    assert failures.is_transient(error) is passing


@pytest.mark.parametrize(("status", "passing"), [(429, True), (500, True), (503, True), (404, False), (409, False)])
def test_which_answers_may_pass(status: int, passing: bool) -> None:
    assert failures.is_transient(answered(status)) is passing


@pytest.mark.parametrize(("status", "code"), [(429, ExitCode.BUILD), (503, ExitCode.BUILD), (409, ExitCode.REFUSED)])
@pytest.mark.parametrize("failure", [RefusedError, PublishError])
def test_what_may_pass_has_a_code_that_a_pipeline_may_retry(
    status: int, code: ExitCode, failure: type[ImagegenError]
) -> None:
    with pytest.raises(failure) as raised, failures.explain_errors("looking", failure):
        raise answered(status)
    assert raised.value.exit_code == (code if failure is RefusedError else ExitCode.PUBLISH)


def answered(status: int) -> sdk.HttpResponseError:
    response: Any = SimpleNamespace(
        status_code=status,
        reason="Reason",
        headers={"x-ms-request-id": "req-1"},
        text=lambda: '{"error": {"code": "TheCode", "message": "the message"}}',
    )
    kind = {404: sdk.ResourceNotFoundError, 401: sdk.ClientAuthenticationError}.get(status, sdk.HttpResponseError)
    return kind(response=response)


@pytest.mark.parametrize(
    ("error", "missing", "kind", "says", "hint"),
    [
        (answered(401), "", PublishError, "no usable Azure credentials", "AZURE_TENANT_ID"),
        (answered(403), "", PublishError, "TheCode: the message", "a role"),
        (answered(404), "make it", ConfigError, "TheCode", "make it"),
        (answered(404), "", PublishError, "TheCode: the message", "run it again"),
        (answered(409), "", PublishError, "TheCode: the message", "run it again"),
        (sdk.ServiceRequestError("no route\nlong advice"), "", PublishError, "doing: no route", "network"),
    ],
)
def test_errors_say_what_to_do(error: Exception, missing: str, kind: type[Exception], says: str, hint: str) -> None:
    with pytest.raises(kind, match=says) as raised, failures.explain_errors("doing", PublishError, missing=missing):
        raise error
    shown: Any = raised.value
    assert hint in shown.hint
    assert "\n" not in shown.message
    if isinstance(error, sdk.HttpResponseError) and error.status_code != 401:
        assert shown.details == ("request id: req-1",)


@pytest.mark.parametrize("status", [401, 404])
def test_credentials_and_a_gallery_that_is_not_there_are_the_configs_fault(status: int) -> None:
    with pytest.raises(ConfigError), failures.explain_errors("listing", RefusedError, missing="create it"):
        raise answered(status)


def test_a_broken_answer_to_a_question_of_its_own_is_told_as_any(answer: Callable[..., list[str]]) -> None:
    answer(arm=(200, "OK", *BROKEN))
    with (
        pytest.raises(RefusedError, match=f"doing: {ARM} answered 200 OK with a broken body instead of JSON"),
        failures.explain_errors("doing", RefusedError),
        resource_manager(ENVIRON, AUTH) as arm,
    ):
        arm.get("/subscriptions/sub", "2022-12-01")
