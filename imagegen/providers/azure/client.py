"""Creates compute clients with the credentials of a run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from imagegen.errors import ConfigError
from imagegen.providers.azure.bounded import ClientOptions, client_options
from imagegen.providers.azure.failures import reject_web_page, silence_libraries
from imagegen.providers.azure.settings import Auth
from imagegen.providers.deadline import Deadline

if TYPE_CHECKING:
    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential
    from azure.mgmt.compute import ComputeManagementClient

# The prefixes of Azure's own tools, and of Packer and Terraform.
FAMILIES = ("AZURE", "ARM")
TIMEOUTS: Final[ClientOptions] = {"connection_timeout": 20, "read_timeout": 120}
_ID = r"[A-Za-z0-9.-]+"
_IDS = {
    "TENANT_ID": "a tenant's id or domain",
    "CLIENT_ID": "an application's id",
    "SUBSCRIPTION_ID": "a subscription's id",
}
_AUTHORITY = (
    "AZURE_AUTHORITY_HOST",
    r"(https://)?[A-Za-z0-9.-]+(:[0-9]+)?/?",
    "a host name or an https:// URL of a sign-in host",
)


@contextlib.contextmanager
def compute(
    environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None
) -> Iterator[ComputeManagementClient]:
    """A client for the subscription in `auth` or the environment. The SDK retries transient errors."""
    from azure.mgmt.compute import ComputeManagementClient

    subscription = auth.subscription_id or subscription_id(environ)
    with (
        credential_for(environ, auth, subscription, deadline) as credential,
        ComputeManagementClient(
            credential, subscription, raw_response_hook=reject_web_page, **TIMEOUTS | client_options(deadline)
        ) as client,
    ):
        yield client


def subscription_id(environ: Mapping[str, str]) -> str:
    """The subscription of this run."""
    subscription = _variable(environ, "SUBSCRIPTION_ID")
    if not subscription:
        raise ConfigError(
            "the Azure subscription is not set",
            hint="set AZURE_SUBSCRIPTION_ID or ARM_SUBSCRIPTION_ID, or targets.azure.auth.subscription_id",
        )
    return subscription


def credential_for(
    environ: Mapping[str, str], auth: Auth, subscription: str, deadline: Deadline | None = None
) -> AzureCliCredential | ClientSecretCredential | DefaultAzureCredential:
    """The credential of this run. Also keeps log messages of the libraries off standard error."""
    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential

    silence_libraries()
    if auth.method == "cli":
        # With the subscription, `az` chooses the right one of several accounts.
        return AzureCliCredential(subscription=subscription)
    _check(environ, *_AUTHORITY)
    tenant, client = (_variable(environ, name) for name in ("TENANT_ID", "CLIENT_ID"))
    named = auth.client_secret_env
    secret = environ.get(named, "") if named else _variable(environ, "CLIENT_SECRET")
    if tenant and client and secret:
        return ClientSecretCredential(
            tenant, client, secret, raw_response_hook=reject_web_page, **client_options(deadline)
        )
    if named:
        # The config requires this secret, so no other identity is used.
        raise ConfigError(
            f"the client secret in {named}, the tenant id or the client id is not set",
            hint=f"set {named}, AZURE_TENANT_ID and AZURE_CLIENT_ID, or leave targets.azure.auth.client_secret_env out",
        )
    # Supports federated tokens, managed identities and `az login`. It reads the environment of the process, and so does
    # the SDK for proxies and certificates: they accept no other environment.
    try:
        return DefaultAzureCredential(raw_response_hook=reject_web_page, **client_options(deadline))
    except (ValueError, OSError) as error:
        # For example because a certificate file does not exist.
        variables = " ".join(sorted(name for name in environ if name.startswith("AZURE_")))
        raise ConfigError(
            f"cannot sign in with {variables}: {error}", hint="correct or unset these variables"
        ) from error


def _variable(environ: Mapping[str, str], name: str) -> str:
    full = next((full for family in FAMILIES if environ.get(full := f"{family}_{name}")), "")
    if full and name in _IDS:
        _check(environ, full, _ID, _IDS[name])
    return environ.get(full, "")


def _check(environ: Mapping[str, str], name: str, form: str, what: str) -> None:
    """Reject a value for which the SDK would raise an unexpected error."""
    value = environ.get(name, "")
    if value and re.fullmatch(form, value) is None:
        raise ConfigError(f"{name}={value!a} is not {what}", hint=f"correct {name}, or unset it")
