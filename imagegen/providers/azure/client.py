"""Clients of Azure with the credentials of a run: of the compute service, and of the Resource Manager."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.providers.azure.failures import reject_web_page, silence_libraries
from imagegen.providers.azure.settings import Auth
from imagegen.providers.time_limits import CONNECT_S, READ_S, RETRIES, Deadline

if TYPE_CHECKING:
    from azure.core import PipelineClient
    from azure.core.pipeline.transport import RequestsTransport
    from azure.core.rest import HttpRequest, HttpResponse
    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential
    from azure.mgmt.compute import ComputeManagementClient

_IDS: Final = {
    "TENANT_ID": "a tenant's id or domain",
    "CLIENT_ID": "an application's id",
    "SUBSCRIPTION_ID": "a subscription's id",
}
SERVICE_PRINCIPAL: Final = ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET", "SUBSCRIPTION_ID")
# The variables of a federated sign-in: of workload identities, GitHub and Azure DevOps.
FEDERATED: Final = (
    "AZURE_FEDERATED_TOKEN_FILE",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "SYSTEM_OIDCREQUESTURI",
    "SYSTEM_ACCESSTOKEN",
)
HOST: Final = "https://management.azure.com"


class ClientOptions(TypedDict, total=False):
    """Options of the SDK's clients and credentials."""

    transport: RequestsTransport
    retry_total: int
    connection_timeout: float
    read_timeout: float


_TIMEOUTS: Final[ClientOptions] = {"connection_timeout": 20, "read_timeout": 120}


def _limits(deadline: Deadline | None) -> ClientOptions:
    """The options that enforce a deadline; empty without one. When Azure throttles, the SDK would wait for minutes."""
    if deadline is None:
        return {}
    return {
        "transport": _transport(deadline),
        "retry_total": RETRIES,
        "connection_timeout": CONNECT_S,
        "read_timeout": READ_S,
    }


def _transport(deadline: Deadline) -> RequestsTransport:
    """The transport, which makes every request and every pause of the SDK, including those of a sign-in."""
    from azure.core.exceptions import AzureError, ServiceRequestTimeoutError
    from azure.core.pipeline.transport import RequestsTransport

    class BoundedTransport(RequestsTransport):  # type: ignore[misc]  # the SDK imports it late, untyped
        def send(self, request: object, **options: object) -> object:
            if not deadline.left_s:
                raise ServiceRequestTimeoutError(f"the limit of {deadline.limit_s:g} seconds has passed")
            # Both, because a slow host may use both in full.
            connect_s, read_s = min(CONNECT_S, deadline.left_s), min(READ_S, deadline.left_s)
            return super().send(request, **options, connection_timeout=connect_s, read_timeout=read_s)

        def sleep(self, duration: float) -> None:
            if not deadline.allows_pause(duration):
                raise AzureError(f"Azure requests a pause of {duration:g} seconds")
            super().sleep(duration)

    return BoundedTransport()


@contextlib.contextmanager
def compute(
    environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None
) -> Iterator[ComputeManagementClient]:
    """A client for the subscription in `auth` or the environment. The SDK retries transient errors."""
    from azure.mgmt.compute import ComputeManagementClient

    subscription = subscription_of(environ, auth)
    with (
        credential_for(environ, auth, deadline) as credential,
        ComputeManagementClient(
            credential, subscription, raw_response_hook=reject_web_page, **_TIMEOUTS | _limits(deadline)
        ) as client,
    ):
        yield client


def subscription_of(environ: Mapping[str, str], auth: Auth) -> str:
    """The subscription in `auth`, or else in the environment."""
    subscription = auth.subscription_id or _variable(environ, "SUBSCRIPTION_ID")
    if not subscription:
        raise ConfigError(
            "the Azure subscription is not set",
            hint="set AZURE_SUBSCRIPTION_ID or ARM_SUBSCRIPTION_ID, or targets.azure.auth.subscription_id",
        )
    return subscription


def credential_for(
    environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None
) -> AzureCliCredential | ClientSecretCredential | DefaultAzureCredential:
    """The credential of this run. Also keeps log messages of the libraries off standard error."""
    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential

    silence_libraries()
    if auth.method == "cli":
        # With the subscription, `az` chooses the right one of several accounts.
        return AzureCliCredential(subscription=subscription_of(environ, auth))
    _check(
        environ,
        "AZURE_AUTHORITY_HOST",
        r"(https://)?[A-Za-z0-9.-]+(:[0-9]+)?/?",
        "a host name or an https:// URL of a sign-in host",
    )
    tenant, client = (_variable(environ, name) for name in ("TENANT_ID", "CLIENT_ID"))
    named = auth.client_secret_env
    secret = environ.get(named, "") if named else _variable(environ, "CLIENT_SECRET")
    if tenant and client and secret:
        return ClientSecretCredential(tenant, client, secret, raw_response_hook=reject_web_page, **_limits(deadline))
    if named:
        # The config requires this secret, so no other identity is used.
        raise ConfigError(
            f"the client secret in {named}, the tenant id or the client id is not set",
            hint=f"set {named}, AZURE_TENANT_ID and AZURE_CLIENT_ID, or leave targets.azure.auth.client_secret_env out",
        )
    # Supports federated tokens, managed identities and `az login`. It reads the environment of the process, and so does
    # the SDK for proxies and certificates: they accept no other environment.
    try:
        return DefaultAzureCredential(raw_response_hook=reject_web_page, **_limits(deadline))
    except (ValueError, OSError) as error:
        # For example because a certificate file does not exist.
        variables = " ".join(sorted(name for name in environ if name.startswith("AZURE_")))
        raise ConfigError(
            f"cannot sign in with {variables}: {error}", hint="correct or unset these variables"
        ) from error


def why_packer_cannot_sign_in(environ: Mapping[str, str], auth: Auth) -> tuple[str, str]:
    """Why Packer's plugin could not sign in where the SDK perhaps can, and what to do; empty where the plugin can.

    With a secret it signs in as a service principal, and without secret and tenant as the machine's identity.
    """
    tenant = next((name for name in ("AZURE_TENANT_ID", "ARM_TENANT_ID") if environ.get(name)), "")
    # The credential itself reports a missing secret that the config names.
    if auth.method == "cli" or auth.client_secret_env or _variable(environ, "CLIENT_SECRET") or not tenant:
        return "", ""
    tokens = ", ".join(name for name in FEDERATED if environ.get(name))
    reason = f"{tenant} is set, and no client secret" + (
        f": it cannot use federated tokens ({tokens})" if tokens else ""
    )
    return reason, (
        f"set AZURE_CLIENT_SECRET; or, on a machine with a managed identity, run `unset {tenant}`; "
        "or run `az login`, and add `--set targets.azure.auth.method=cli`"
    )


def _variable(environ: Mapping[str, str], name: str) -> str:
    """A variable with the prefix of Azure's own tools, or else with that of Packer and Terraform."""
    full = next((full for full in (f"AZURE_{name}", f"ARM_{name}") if environ.get(full)), "")
    if full and name in _IDS:
        _check(environ, full, r"[A-Za-z0-9.-]+", _IDS[name])
    return environ.get(full, "")


def _check(environ: Mapping[str, str], name: str, form: str, what: str) -> None:
    """Reject a value for which the SDK would raise an unexpected error."""
    value = environ.get(name, "")
    if value and re.fullmatch(form, value) is None:
        raise ConfigError(f"{name}={value!a} is not {what}", hint=f"correct {name}, or unset it")


@dataclasses.dataclass(frozen=True)
class Arm:
    """The Resource Manager of one subscription: its groups, deployments and vaults. Raises the errors of the SDK."""

    client: PipelineClient[HttpRequest, HttpResponse]
    subscription: str

    @property
    def root(self) -> str:
        """The path of the subscription."""
        return f"/subscriptions/{self.subscription}"

    def listed(self, path: str, version: str, **query: str) -> Iterator[Any]:
        """Every item of a collection, page by page; none where the collection does not exist."""
        page = self._request("GET", path, {"api-version": version, **query})
        while page:
            yield from page.get("value", [])
            following = page.get("nextLink")
            page = self._request("GET", _path_of(following), {}) if following else None

    def get(self, path: str, version: str) -> Any | None:  # noqa: ANN401 - each API has forms of its own
        """A resource, or None where it does not exist."""
        return self._request("GET", path, {"api-version": version})

    def send(self, method: str, path: str, version: str) -> Any | None:  # noqa: ANN401 - as above
        """Request an action or a deletion, which the Resource Manager completes later."""
        return self._request(method, path, {"api-version": version})

    def _request(self, method: str, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        from azure.core.exceptions import DecodeError, HttpResponseError
        from azure.core.rest import HttpRequest
        from azure.mgmt.core.exceptions import ARMErrorFormat

        response = self.client.send_request(HttpRequest(method, f"{HOST}{path}", params=dict(query)))
        # A web page with status 404 is from a proxy.
        if response.status_code == 404 and "json" in (response.content_type or ""):
            return None
        if response.status_code >= 400:
            raise HttpResponseError(response=response, error_format=ARMErrorFormat)
        try:
            body: dict[str, Any] = response.json() if response.content else {}
        except ValueError as error:
            # The error of the SDK's own clients.
            raise DecodeError("the body is not JSON", response=response, error=error) from error
        return body


def _path_of(link: str) -> str:
    """The path and query of a link to the next page. Another host must not get the credentials."""
    parts = urllib.parse.urlsplit(link)
    if (parts.scheme or parts.netloc) and f"{parts.scheme}://{parts.hostname}" != HOST:
        raise RefusedError(f"the next page of Azure's answer is at {link.partition('?')[0]}, which is not below {HOST}")
    return urllib.parse.urlunsplit(parts._replace(scheme="", netloc="", fragment=""))


@contextlib.contextmanager
def resource_manager(environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None) -> Iterator[Arm]:
    """Connect to the subscription in `auth` or the environment. Retries transient errors until the deadline."""
    from azure.core.pipeline import policies
    from azure.core.rest import HttpRequest, HttpResponse
    from azure.mgmt.core import ARMPipelineClient
    from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

    subscription = subscription_of(environ, auth)
    options = _TIMEOUTS | _limits(deadline)
    with (
        credential_for(environ, auth, deadline) as credential,
        ARMPipelineClient[HttpRequest, HttpResponse](
            base_url=HOST,
            policies=[
                policies.RequestIdPolicy(),
                policies.UserAgentPolicy(),
                policies.RetryPolicy(**options),
                ARMChallengeAuthenticationPolicy(credential, f"{HOST}/.default"),
                policies.CustomHookPolicy(raw_response_hook=reject_web_page),
                policies.SensitiveHeaderCleanupPolicy(),
            ],
            **options,
        ) as client,
    ):
        yield Arm(client, subscription)
