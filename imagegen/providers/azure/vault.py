"""The builder's certificate in a key vault of the operator's own: Packer's plugin puts it there and leaves it there."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from imagegen.providers.azure.failures import refuse_web_page

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.policies import HTTPPolicy, SansIOHTTPPolicy

_API_VERSION: Final = "7.4"
_SCOPE: Final = "https://vault.azure.net/.default"


def new_secret_name() -> str:
    """A name for one run's certificate. A deleted secret keeps its name for weeks, and no other may have it then."""
    return f"imagegen-{uuid.uuid4()}"


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
