"""A compute client for a run's credentials, and what the SDK's errors mean for an operator."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imagegen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from azure.core.exceptions import HttpResponseError
    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential
    from azure.mgmt.compute import ComputeManagementClient

    from imagegen.errors import ImagegenError

# The names of Azure's own tools first, then those that Packer and Terraform read.
FAMILIES = ("AZURE", "ARM")
CONNECT_TIMEOUT_S = 20
READ_TIMEOUT_S = 120

_CREDENTIALS_HINT = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET (or the same names with ARM_), "
    "or run where a managed identity or `az login` is; with targets.azure.auth.method cli, only `az login` counts"
)


@contextlib.contextmanager
def compute(environ: Mapping[str, str], auth: Mapping[str, Any]) -> Iterator[ComputeManagementClient]:
    """A client for the subscription that `auth` or else the environment names. The SDK retries what may pass."""
    from azure.mgmt.compute import ComputeManagementClient

    subscription = auth["subscription_id"] or subscription_id(environ)
    with (
        _credential(environ, auth, subscription) as credential,
        ComputeManagementClient(
            credential, subscription, connection_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S
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


def _credential(
    environ: Mapping[str, str], auth: Mapping[str, Any], subscription: str
) -> AzureCliCredential | ClientSecretCredential | DefaultAzureCredential:
    from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential

    if auth["method"] == "cli":
        # The subscription, so that `az` takes the account it belongs to: it may know several.
        return AzureCliCredential(subscription=subscription)
    tenant, client = (_variable(environ, name) for name in ("TENANT_ID", "CLIENT_ID"))
    named: str | None = auth["client_secret_env"]
    secret = environ.get(named, "") if named else _variable(environ, "CLIENT_SECRET")
    if tenant and client and secret:
        return ClientSecretCredential(tenant, client, secret)
    if named:
        # Falling back to another identity would not be what the config says.
        raise ConfigError(
            f"{named} is to hold the client secret, and it or the tenant's or the client's id is not set",
            hint=f"set {named}, AZURE_TENANT_ID and AZURE_CLIENT_ID, or leave targets.azure.auth.client_secret_env out",
        )
    # Federated tokens, managed identities and the CLI's login; it reads the process's environment, as the SDK does for
    # proxies and certificates: there is no way to hand it one.
    return DefaultAzureCredential()


def _variable(environ: Mapping[str, str], name: str) -> str:
    return next((environ[full] for family in FAMILIES if environ.get(full := f"{family}_{name}")), "")


@contextlib.contextmanager
def explained(doing: str, failure: type[ImagegenError], *, missing: str = "") -> Iterator[None]:
    """Errors of the SDK as errors to act on: `failure`, or ConfigError where the credentials are at fault.

    `missing` says what is wrong with the config when Azure answers 404; without it that is a `failure` as any other.
    """
    from azure.core import exceptions as sdk

    try:
        yield
    except sdk.ClientAuthenticationError as error:
        raise ConfigError(
            f"{doing}: no usable Azure credentials: {_first_line(error)}", hint=_CREDENTIALS_HINT
        ) from error
    except sdk.HttpResponseError as error:
        raise _from_answer(doing, error, failure, missing) from error
    except sdk.AzureError as error:
        raise failure(f"{doing}: {_first_line(error)}", hint="check the network, and run it again") from error


def _from_answer(doing: str, error: HttpResponseError, failure: type[ImagegenError], missing: str) -> ImagegenError:
    answered = getattr(error.response, "headers", None) or {}
    details = (f"request id: {answered.get('x-ms-request-id', 'unknown')}",)
    code = error.error.code if error.error is not None and error.error.code else str(error.status_code)
    reason = error.error.message if error.error is not None and error.error.message else _first_line(error)
    if error.status_code == 404 and missing:
        return ConfigError(f"{doing}: {code}", hint=missing, details=details)
    if error.status_code == 403:
        hint = "give these credentials a role that allows it, and run it again"
    else:
        hint = "run it again when the reason is gone"
    return failure(f"{doing}: {code}: {reason}", hint=hint, details=details)


def _first_line(error: Exception) -> str:
    # The SDK's messages go on with advice for programmers.
    return next(iter(str(error).splitlines()), type(error).__name__)
