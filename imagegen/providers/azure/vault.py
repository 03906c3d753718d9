"""Finds and deletes the builder's certificate in the operator's own key vault, where Packer's plugin leaves it.

The secret has no tags. Its name contains the id of the run, and therefore the start time.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from imagegen.providers import Leftover
from imagegen.providers.azure.arm import Arm
from imagegen.providers.azure.failures import reject_web_page

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.policies import HTTPPolicy, SansIOHTTPPolicy

API: Final = "2023-07-01"
KIND: Final = "key vault secret"
_API_VERSION: Final = "7.4"
_SCOPE: Final = "https://vault.azure.net/.default"


# The name by imagegen, or by Packer without imagegen, which adds a random suffix.
_NAME: Final = re.compile(r"imagegen-(?P<run>(?P<began>[0-9]{8}t[0-9]{6}z)-(?:[0-9a-f]{6}|packer))(?:-[0-9a-f-]{36})?")
# Longer than any build. The journal of a run detects an ended run earlier.
_KEPT: Final = datetime.timedelta(days=7)


def secret_name(run_id: str) -> str:
    """The name of the certificate of a run. It is unique, because a deleted secret blocks its name for weeks."""
    return f"imagegen-{run_id}"


def find_secrets(arm: Arm, group: str, vault: str) -> Iterator[Leftover]:
    """Find the certificates of builds in a vault; none where the vault does not exist."""
    root = f"{group}/providers/Microsoft.KeyVault/vaults/{vault}"
    for secret in arm.listed(f"{root}/secrets", API):
        name = secret["name"].rpartition("/")[2]
        if (match := _NAME.fullmatch(name)) is None:
            continue
        try:
            began = datetime.datetime.strptime(match["began"], "%Y%m%dt%H%M%Sz").replace(tzinfo=datetime.UTC)
        except ValueError:
            # A name with an invalid time is not from imagegen.
            continue
        yield Leftover(
            kind=KIND,
            id=f"{root}/secrets/{name}",
            region=secret.get("location", ""),
            name=f"{vault}/{name}",
            state="",
            run_id=match["run"],
            expires_at=(began + _KEPT).strftime("%Y-%m-%dT%H:%M:%SZ"),
            image_id="",
        )


def delete_secret(credential: TokenCredential, vault: str, name: str) -> None:
    """Delete a secret, which remains recoverable as the vault is configured. Raises the errors of the SDK.

    A secret that does not exist is no error: the build may have ended before creating it.
    """
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy, CustomHookPolicy, RetryPolicy
    from azure.core.rest import HttpRequest, HttpResponse

    policies: list[SansIOHTTPPolicy[HttpRequest, HttpResponse] | HTTPPolicy[HttpRequest, HttpResponse]] = [
        RetryPolicy[HttpRequest, HttpResponse](),
        BearerTokenCredentialPolicy(credential, _SCOPE),
        CustomHookPolicy(raw_response_hook=reject_web_page),
    ]
    host = f"https://{vault}.vault.azure.net"
    request = HttpRequest("DELETE", f"{host}/secrets/{name}", params={"api-version": _API_VERSION})
    with PipelineClient[HttpRequest, HttpResponse](host, policies=policies) as client:
        response = client.send_request(request)
        if response.status_code != 404:
            response.raise_for_status()
