"""Credentials and base images on Azure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import azure.identity
import pytest

from imagegen.base.errors import ConfigError
from imagegen.providers.azure import client, source
from imagegen.providers.azure.gallery import is_version_name
from imagegen.providers.azure.settings import Auth, BaseImage, Settings

REQUEST = {"location": "westeurope", "publisher": "MicrosoftWindowsServer", "offer": "windowsserver2022", "sku": "core"}
SETTINGS = Settings.model_validate(
    {
        "location": "westeurope",
        "gallery": {"resource_group": "images", "name": "gal", "definition": "def"},
        "publish": {"regions": ["northeurope"]},
    }
)


OWN = REQUEST | {"generation": "2"}
AUTH = Auth()
NAMED_SECRET = Auth.model_validate({"client_secret_env": "IMAGES_SECRET"})


def marketplace(*versions: str, generation: str | None = None) -> Any:  # noqa: ANN401 - a ComputeManagementClient
    place = ("westeurope", "MicrosoftWindowsServer", "windowsserver2022", "core")

    def listed(*asked: str) -> list[SimpleNamespace]:
        assert asked == place
        return [SimpleNamespace(name=version) for version in versions]

    def got(*asked: str) -> SimpleNamespace:
        assert asked == (*place, "20348.5499.260809")
        return SimpleNamespace(hyper_v_generation=generation)

    return SimpleNamespace(virtual_machine_images=SimpleNamespace(list=listed, get=got))


def test_the_highest_version_is_by_number_and_not_by_text() -> None:
    locked = source.look_up_base(
        marketplace("20348.999.260101", "20348.5499.260809", "20348.587.220303", "odd"), REQUEST
    )
    assert locked.request == REQUEST
    assert locked.identity == {
        "publisher": "MicrosoftWindowsServer",
        "offer": "windowsserver2022",
        "sku": "core",
        "version": "20348.5499.260809",
    }
    assert locked.place == {"location": "westeurope"}


def test_no_version_is_the_configs_fault() -> None:
    with pytest.raises(ConfigError, match="no base image MicrosoftWindowsServer:windowsserver2022:core in westeurope"):
        source.look_up_base(marketplace(), REQUEST)


@pytest.mark.parametrize("generation", ["V2", None])
def test_a_version_of_ones_own_choice_is_taken_exactly(generation: str | None) -> None:
    client = marketplace("20348.5499.260809", "20348.6000.261111", generation=generation)
    locked = source.look_up_base(client, OWN | {"version": "20348.5499.260809"})
    assert locked.identity == {
        "publisher": "MicrosoftWindowsServer",
        "offer": "windowsserver2022",
        "sku": "core",
        "version": "20348.5499.260809",
    }


@pytest.mark.parametrize(
    ("version", "generation", "says"),
    [
        ("20348.1.1", "V2", "no base image MicrosoftWindowsServer:windowsserver2022:core:20348.1.1 in westeurope"),
        ("20348.5499.260809", "V1", "has generation 1, not 2"),
    ],
)
def test_an_image_of_ones_own_choice_must_fit(version: str, generation: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        source.look_up_base(marketplace("20348.5499.260809", generation=generation), OWN | {"version": version})


FAMILY = {"TENANT_ID": "t", "CLIENT_ID": "c", "CLIENT_SECRET": "s", "SUBSCRIPTION_ID": "sub"}


@pytest.mark.parametrize("prefix", ["AZURE", "ARM"])
def test_both_families_of_names_are_accepted(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorded_credentials(monkeypatch)
    with client.compute({f"{prefix}_{name}": value for name, value in FAMILY.items()}, AUTH):
        pass
    assert made == [("t", "c", "s")]


def test_azures_own_names_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorded_credentials(monkeypatch)
    environ = {f"ARM_{name}": f"arm-{value}" for name, value in FAMILY.items()} | {"AZURE_CLIENT_ID": "azure-c"}
    with client.compute(environ, AUTH):
        pass
    assert made == [("arm-t", "azure-c", "arm-s")]
    assert client.subscription_of(environ | {"AZURE_SUBSCRIPTION_ID": "azure-sub"}, AUTH) == "azure-sub"


def test_without_a_secret_the_default_chain_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorded_credentials(monkeypatch)
    with client.compute({"AZURE_SUBSCRIPTION_ID": "sub", "AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t"}, AUTH):
        pass
    assert made == [()]


def test_the_config_says_whose_subscription_and_secret_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorded_credentials(monkeypatch)
    environ = {f"AZURE_{name}": value for name, value in FAMILY.items()} | {"IMAGES_SECRET": "other"}
    with client.compute(environ, NAMED_SECRET):
        pass
    del environ["AZURE_SUBSCRIPTION_ID"]
    # `az` knows its own tenant: nothing of the environment counts, and the subscription says which account.
    with client.compute(environ, Auth.model_construct(method="cli", subscription_id="own")):
        pass
    assert made == [("t", "c", "other"), ("subscription=own",)]


@pytest.mark.parametrize("left_out", ["IMAGES_SECRET", "AZURE_TENANT_ID", "AZURE_CLIENT_ID"])
def test_a_named_secret_is_never_replaced_by_another_identity(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorded_credentials(monkeypatch)
    environ = {f"AZURE_{name}": value for name, value in FAMILY.items()} | {"IMAGES_SECRET": "other", left_out: ""}
    auth = NAMED_SECRET
    with pytest.raises(ConfigError, match="IMAGES_SECRET, the tenant id or"), client.compute(environ, auth):
        pytest.fail("a client without its secret")
    assert made == []


@pytest.mark.parametrize("environ", [{}, {"AZURE_SUBSCRIPTION_ID": ""}])
def test_no_subscription_names_what_to_set(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="the Azure subscription") as raised, client.compute(environ, AUTH):
        pytest.fail("a client without a subscription")
    assert raised.value.hint.startswith("set AZURE_SUBSCRIPTION_ID or ARM_SUBSCRIPTION_ID,")


def recorded_credentials(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    made: list[tuple[str, ...]] = []

    class Credential:
        def __init__(self, *values: str, **named: str) -> None:
            named.pop("raw_response_hook", None)
            made.append((*values, *(f"{name}={value}" for name, value in named.items())))

        def __enter__(self) -> Credential:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def get_token(self, *_: str) -> None:
            pytest.fail("a token was asked for")

    # azure.identity is imported above, not by the code under test: its import asks `uname` for its User-Agent.
    for kind in ("AzureCliCredential", "ClientSecretCredential", "DefaultAzureCredential"):
        monkeypatch.setattr(azure.identity, kind, Credential)
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.2.3", True),
        ("2026.1118.0", True),
        ("2147483647.0.0", True),
        ("2147483648.0.0", False),
        ("v1.2.3", False),
        ("1.2", False),
        ("1.2.3-rc.1", False),
        ("1.2.3\n", False),
    ],
)
def test_a_version_name_is_three_integers(text: str, expected: bool) -> None:
    assert is_version_name(text) is expected


def test_settings_become_plain_json() -> None:
    assert source.base_request(SETTINGS, {"offer": "windowsserver2022", "sku": "core"}) == REQUEST
    own = BaseImage(offer="windowsserver2022", sku="core", version="20348.1.1")
    chosen = SETTINGS.model_copy(update={"base_image": own})
    # The catalogue may have no image for the release at all.
    assert source.base_request(chosen, {}) == OWN | {"version": "20348.1.1"}
    wanted = {"regions": ["northeurope"], "replicas": 1, "version": "date"}
    assert SETTINGS.publish_json() == wanted
