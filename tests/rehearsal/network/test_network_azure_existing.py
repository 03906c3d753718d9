"""What an Azure of the rehearsal has before a build: a group with a network and a key vault of the operator's own."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pytest

from imagegen.rehearsal.clouds.azure.cloud import Azure, AzureOptions
from imagegen.rehearsal.clouds.azure.options import ExistingGroup
from imagegen.rehearsal.network.messages import Request

_GROUPS = (
    ExistingGroup("builds", network="net", subnet="builders"),
    # Named twice, as a config may do: for its network and for its vault.
    ExistingGroup("builds", key_vault="Builds1"),
)
_SECRET = "/secrets/packerKeyVaultSecret"  # noqa: S105 - the path of one, which Packer's plugin chose


class _Account:
    """Whoever is logged in to it."""

    def __init__(self) -> None:
        self.azure = Azure(AzureOptions(groups=_GROUPS), lambda _: None)
        self.base = f"/subscriptions/{self.azure.application.subscription}"

    def ask(self, method: str, host: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        known = self.azure.application
        scope = "https://vault.azure.net" if "vault" in host else "https://management.azure.com"
        form = {"grant_type": "client_credentials", "client_id": known.client_id, "client_secret": known.secret}
        login = f"/{known.tenant}/oauth2/v2.0/token"
        data = urllib.parse.urlencode({**form, "scope": f"{scope}/.default"}).encode()
        given = self.azure(Request("POST", "login.microsoftonline.com", login, {}, {}, data, login))
        headers = {"authorization": f"Bearer {json.loads(given.body)['access_token']}"}
        sent = json.dumps(body).encode() if body is not None else b""
        answer = self.azure(Request(method, host, path, {"api-version": "1"}, headers, sent, path))
        return answer.status, json.loads(answer.body)

    def manage(self, path: str) -> tuple[int, Any]:
        return self.ask("GET", "management.azure.com", f"{self.base}{path}")


@pytest.fixture
def account() -> _Account:
    return _Account()


def test_a_network_is_found_by_its_name_alone(account: _Account) -> None:
    status, found = account.manage("/providers/Microsoft.Network/virtualNetworks")
    assert (status, [each["name"] for each in found["value"]]) == (200, ["net"])
    network = str(found["value"][0]["id"]).removeprefix(account.base)
    assert network == "/resourceGroups/builds/providers/Microsoft.Network/virtualNetworks/net"
    status, subnets = account.manage(f"{network}/subnets")
    assert (status, [each["name"] for each in subnets["value"]]) == (200, ["builders"])
    assert account.manage(f"{network}s/subnets")[0] == 404


def test_a_vault_takes_a_secret_and_gives_it_back(account: _Account) -> None:
    host = "builds1.vault.azure.net"
    status, made = account.ask("PUT", host, _SECRET, {"value": "first"})
    assert (status, made["value"]) == (200, "first")
    _, again = account.ask("PUT", host, _SECRET, {"value": "second"})
    assert again["id"] != made["id"]
    assert account.ask("GET", host, _SECRET)[1] == again
    version = again["id"].partition(".net")[2]
    assert account.ask("PUT", host, version, {"value": "third"})[0] == 404
    assert account.ask("PUT", host, _SECRET, {})[0] == 400
    assert account.ask("PUT", "other.vault.azure.net", _SECRET, {"value": "first"})[0] == 404
