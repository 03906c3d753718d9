"""The builder's certificate in a key vault of the operator's own: Packer's plugin puts it there and leaves it there.

The secret has no tags of ours: its name alone says which run it is of, and so when that began.
"""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Final

from imagegen.providers import Leftover
from imagegen.providers.azure.failures import refuse_web_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.policies import HTTPPolicy, SansIOHTTPPolicy

    from imagegen.providers.azure.arm import Arm

API: Final = "2023-07-01"
KIND: Final = "key vault secret"
_API_VERSION: Final = "7.4"
_SCOPE: Final = "https://vault.azure.net/.default"


# As imagegen names it, or a plain Packer, whose runs of one second a random end tells apart.
_NAME: Final = re.compile(r"imagegen-(?P<run>(?P<began>[0-9]{8}t[0-9]{6}z)-(?:[0-9a-f]{6}|packer))(?:-[0-9a-f-]{36})?")
# No build lasts so long. On the machine of its journal a dead run is known at once.
_KEPT: Final = datetime.timedelta(days=7)


def secret_name(run_id: str) -> str:
    """A name for one run's certificate. A deleted secret keeps its name for weeks, and no other may have it then."""
    return f"imagegen-{run_id}"


def find_secrets(arm: Arm, group: str, vault: str) -> Iterator[Leftover]:
    """The certificates of builds in this vault of the group; a vault that is gone has none."""
    root = f"{group}/providers/Microsoft.KeyVault/vaults/{vault}"
    for secret in arm.listed(f"{root}/secrets", API):
        name = secret["name"].rpartition("/")[2]
        if (found := _NAME.fullmatch(name)) is None:
            continue
        try:
            began = datetime.datetime.strptime(found["began"], "%Y%m%dt%H%M%Sz").replace(tzinfo=datetime.UTC)
        except ValueError:
            # Digits that are no time are somebody else's name.
            continue
        yield Leftover(
            kind=KIND,
            id=f"{root}/secrets/{name}",
            region=secret.get("location", ""),
            name=f"{vault}/{name}",
            state="",
            run_id=found["run"],
            expires_at=(began + _KEPT).strftime("%Y-%m-%dT%H:%M:%SZ"),
            image_id="",
        )


def delete_secret(credential: TokenCredential, vault: str, name: str) -> None:
    """Delete a secret, which the vault then keeps recoverable for as long as it is set to; errors are the SDK's.

    Where the build ended before there was one, nothing is deleted.
    """
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy, CustomHookPolicy, RetryPolicy
    from azure.core.rest import HttpRequest, HttpResponse

    policies: list[SansIOHTTPPolicy[HttpRequest, HttpResponse] | HTTPPolicy[HttpRequest, HttpResponse]] = [
        RetryPolicy[HttpRequest, HttpResponse](),
        BearerTokenCredentialPolicy(credential, _SCOPE),
        CustomHookPolicy(raw_response_hook=refuse_web_page),
    ]
    host = f"https://{vault}.vault.azure.net"
    request = HttpRequest("DELETE", f"{host}/secrets/{name}", params={"api-version": _API_VERSION})
    with PipelineClient[HttpRequest, HttpResponse](host, policies=policies) as client:
        response = client.send_request(request)
        if response.status_code != 404:
            response.raise_for_status()
