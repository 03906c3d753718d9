"""A compute client for a run's credentials."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from imagegen.errors import ConfigError
from imagegen.providers.azure.bounded import ClientOptions, client_options
from imagegen.providers.azure.failures import refuse_web_page, silence_libraries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential
    from azure.mgmt.compute import ComputeManagementClient

    from imagegen.providers.azure.settings import Auth
    from imagegen.providers.deadline import Deadline

# The names of Azure's own tools first, then those that Packer and Terraform read.
FAMILIES = ("AZURE", "ARM")
TIMEOUTS: Final[ClientOptions] = {"connection_timeout": 20, "read_timeout": 120}
_ID = r"[A-Za-z0-9.-]+"
_IDS = {
    "TENANT_ID": "a tenant's id or domain",
    "CLIENT_ID": "an application's id",
    "SUBSCRIPTION_ID": "a subscription's id",
}
_AUTHORITY = ("AZURE_AUTHORITY_HOST", r"(https://)?[A-Za-z0-9.-]+(:[0-9]+)?/?", "the host that signs in, by HTTPS")


@contextlib.contextmanager
def compute(
    environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None
) -> Iterator[ComputeManagementClient]:
    """A client for the subscription that `auth` or else the environment names. The SDK retries what may pass."""
    from azure.mgmt.compute import ComputeManagementClient

    subscription = auth.subscription_id or subscription_id(environ)
    with (
        credential_for(environ, auth, subscription, deadline) as credential,
        ComputeManagementClient(
            credential, subscription, raw_response_hook=refuse_web_page, **TIMEOUTS | client_options(deadline)
        ) as client,
    ):
        yield client


def subscription_id(environ: Mapping[str, str]) -> str:
    """The subscription of this run."""
    found = _variable(environ, "SUBSCRIPTION_ID")
    if not found:
        raise ConfigError(
            "no Azure subscription is named",
            hint="set AZURE_SUBSCRIPTION_ID or ARM_SUBSCRIPTION_ID, or say targets.azure.auth.subscription_id",
        )
    return found


def credential_for(
    environ: Mapping[str, str], auth: Auth, subscription: str, deadline: Deadline | None = None
) -> AzureCliCredential | ClientSecretCredential | DefaultAzureCredential:
    """Who this run is; what its libraries log stays off standard error from here on."""
    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential

    silence_libraries()
    if auth.method == "cli":
        # The subscription, so that `az` takes the account it belongs to: it may know several.
        return AzureCliCredential(subscription=subscription)
    _check(environ, *_AUTHORITY)
    tenant, client = (_variable(environ, name) for name in ("TENANT_ID", "CLIENT_ID"))
    named = auth.client_secret_env
    secret = environ.get(named, "") if named else _variable(environ, "CLIENT_SECRET")
    if tenant and client and secret:
        return ClientSecretCredential(
            tenant, client, secret, raw_response_hook=refuse_web_page, **client_options(deadline)
        )
    if named:
        # Falling back to another identity would not be what the config says.
        raise ConfigError(
            f"{named} is to hold the client secret, and it or the tenant's or the client's id is not set",
            hint=f"set {named}, AZURE_TENANT_ID and AZURE_CLIENT_ID, or leave targets.azure.auth.client_secret_env out",
        )
    # Federated tokens, managed identities and the CLI's login; it reads the process's environment, as the SDK does for
    # proxies and certificates: there is no way to hand it one.
    try:
        return DefaultAzureCredential(raw_response_hook=refuse_web_page, **client_options(deadline))
    except (ValueError, OSError) as error:
        # As a certificate that is not there.
        said = " ".join(sorted(name for name in environ if name.startswith("AZURE_")))
        raise ConfigError(f"no sign-in can be made of {said}: {error}", hint="correct them, or unset them") from error


def _variable(environ: Mapping[str, str], name: str) -> str:
    full = next((full for family in FAMILIES if environ.get(full := f"{family}_{name}")), "")
    if full and name in _IDS:
        _check(environ, full, _ID, _IDS[name])
    return environ.get(full, "")


def _check(environ: Mapping[str, str], name: str, form: str, what: str) -> None:
    """Refuse what the SDK would end with a traceback of."""
    value = environ.get(name, "")
    if value and re.fullmatch(form, value) is None:
        raise ConfigError(f"{name}={value!a} is not {what}", hint=f"correct {name}, or unset it")
