"""A client of the Resource Manager for the subscription, resource groups, deployments and vaults."""

from __future__ import annotations

import contextlib
import dataclasses
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import RefusedError
from imagegen.providers.azure import client as azure
from imagegen.providers.azure.bounded import client_options
from imagegen.providers.azure.failures import reject_web_page
from imagegen.providers.azure.settings import Auth
from imagegen.providers.deadline import Deadline

if TYPE_CHECKING:
    from azure.core.rest import HttpRequest, HttpResponse
    from azure.mgmt.core import ARMPipelineClient

_HOST_NAME: Final = "management.azure.com"
HOST: Final = f"https://{_HOST_NAME}"
_NOT_FOUND: Final = 404


@dataclasses.dataclass(frozen=True)
class Arm:
    """One subscription. Raises the errors of the SDK."""

    client: ARMPipelineClient[HttpRequest, HttpResponse]
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

    def post(self, path: str, version: str) -> Any | None:  # noqa: ANN401 - as above
        return self._request("POST", path, {"api-version": version})

    def delete(self, path: str, version: str) -> None:
        """Request the deletion of a resource, which the Resource Manager completes later."""
        self._request("DELETE", path, {"api-version": version})

    def _request(self, method: str, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        from azure.core.exceptions import DecodeError, HttpResponseError
        from azure.core.rest import HttpRequest
        from azure.mgmt.core.exceptions import ARMErrorFormat

        response = self.client.send_request(HttpRequest(method, f"{HOST}{path}", params=dict(query)))
        # A web page with status 404 is from a proxy.
        if response.status_code == _NOT_FOUND and "json" in (response.content_type or ""):
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
    if (parts.scheme, parts.hostname) not in (("https", _HOST_NAME), ("", None)):
        raise RefusedError(f"the next page of Azure's answer is at {link.partition('?')[0]}, which is not below {HOST}")
    return urllib.parse.urlunsplit(parts._replace(scheme="", netloc="", fragment=""))


@contextlib.contextmanager
def resource_manager(environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None) -> Iterator[Arm]:
    """Connect to the subscription in `auth` or the environment. Retries transient errors until the deadline."""
    from azure.core.pipeline import policies
    from azure.mgmt.core import ARMPipelineClient
    from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

    subscription = auth.subscription_id or azure.subscription_id(environ)
    options = azure.TIMEOUTS | client_options(deadline)
    with azure.credential_for(environ, auth, subscription, deadline) as credential:
        steps = [
            policies.RequestIdPolicy(),
            policies.UserAgentPolicy(),
            policies.RetryPolicy(**options),
            ARMChallengeAuthenticationPolicy(credential, f"{HOST}/.default"),
            policies.CustomHookPolicy(raw_response_hook=reject_web_page),
            policies.SensitiveHeaderCleanupPolicy(),
        ]
        client: ARMPipelineClient[HttpRequest, HttpResponse] = ARMPipelineClient(
            base_url=HOST, policies=steps, **options
        )
        with client:
            yield Arm(client, subscription)
