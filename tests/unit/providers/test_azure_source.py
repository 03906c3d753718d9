"""Settings of Azure as Packer is told them: each key by its attribute, each attribute known to the plugin asked for."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from packaging.version import Version

from imagegen.base import contents
from imagegen.base.templating import TemplateError, render_text
from imagegen.providers.azure import gallery, provider, source
from imagegen.providers.azure.settings import Settings
from tests.source_block import NULL, parse_hcl, source_attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.plan.model import BuildPlan
    from imagegen.steps.resource import Strict

ATTRIBUTES = json.loads((Path(__file__).parents[2] / "data/packer-plugin-attributes.json").read_bytes())["azure-arm"]
SECTIONS = {"shared_image_gallery_destination": "SharedImageGalleryDestination", "spot": "Spot"}
TEMPLATE = contents.read_folder(contents.PACKER, "azure/*.j2")["azure/source.pkr.hcl.j2"].decode()

GALLERY = {"resource_group": "images", "name": "gal", "definition": "def"}
LEAST = {"location": "westeurope", "gallery": GALLERY}
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
KEYS = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/keys/providers/Microsoft.Compute/diskEncryptionSets/images"
OWN_NETWORK = {"virtual_network": "net", "subnet": "builders", "resource_group": "nets", "public_address": True}

DISK_OF_SIZE = 'contains(var.azure.premium_sizes, local.vm_size) ? "Premium_LRS" : "Standard_LRS"'
OWN_SECRET = 'var.key_vault_secret == "" ? local.own_secret : var.key_vault_secret'  # noqa: S105 - no secret itself
SUBSCRIPTION_OF_FAMILIES = (
    '${var.azure_subscription_id == "" ? var.arm_subscription_id : var.azure_subscription_id}'  # either family
)
NOTHING: dict[str, Any] = {}
VERSIONS = {"kubernetes": "1.35.6", "containerd": "2.1.4", "cloudbase_init": "1.1.6"}

# What is asked for beside the least, and what the source block says then: a value, or an expression that is not one.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "least",
        NOTHING,
        {
            "location": "westeurope",
            "vm_size": "local.vm_size",
            "managed_image_storage_account_type": DISK_OF_SIZE,
            "winrm_timeout": "var.timeouts.winrm",
        },
    ),
    (
        "gallery",
        {"gallery": {**GALLERY, "storage": "Standard_ZRS"}},
        {
            "shared_image_gallery_destination.resource_group": "images",
            "shared_image_gallery_destination.gallery_name": "gal",
            "shared_image_gallery_destination.image_name": "def",
            "shared_image_gallery_destination.storage_account_type": "Standard_ZRS",
        },
    ),
    ("spot", {"spot": NOTHING}, {"spot.eviction_policy": "Delete", "spot.max_price": -1}),
    ("price", {"spot": {"max_price": "0.25"}}, {"spot.max_price": 0.25}),
    (
        "network",
        {"network": OWN_NETWORK},
        {
            "virtual_network_name": "net",
            "virtual_network_subnet_name": "builders",
            "virtual_network_resource_group_name": "nets",
            "private_virtual_network_with_public_ip": True,
        },
    ),
    (
        "network-only",
        {"network": {"virtual_network": "net"}},
        {"virtual_network_name": "net", "virtual_network_subnet_name": "absent"},
    ),
    (
        "inbound",
        {"network": {"allowed_cidrs": ["198.51.100.0/24"]}},
        {"allowed_inbound_ip_addresses": ["198.51.100.0/24"], "virtual_network_name": "absent"},
    ),
    (
        "group",
        {"build_resource_group": "builds", "key_vault": "builds"},
        {
            "build_resource_group_name": "builds",
            "build_key_vault_name": "builds",
            "build_key_vault_secret_name": OWN_SECRET,
            "location": "absent",
        },
    ),
    ("disk", {"disk_size_gb": 80}, {"os_disk_size_gb": 80}),
    ("encryption", {"disk_encryption_set": KEYS}, {"disk_encryption_set_id": KEYS}),
    ("licence", {"licence_type": "Windows_Server"}, {"license_type": "Windows_Server"}),
    (
        "trusted",
        {"security_type": "TrustedLaunch"},
        {"security_type": "TrustedLaunch", "secure_boot_enabled": True, "vtpm_enabled": True},
    ),
    ("secret", {"auth": {"client_secret_env": "IMAGES_SECRET"}}, {"client_secret": "var.client_secret"}),
    (
        "cli",
        {"auth": {"method": "cli"}},
        {"use_azure_cli_auth": True, "client_id": "absent", "client_secret": "absent", "tenant_id": "absent"},
    ),
    ("subscription", {"auth": {"subscription_id": SUBSCRIPTION}}, {"subscription_id": "local.subscription_id"}),
]
BY_NAME = {name: asked for name, asked, _ in CASES}


class Rendered:
    """The template for some settings, as HCL readers see it."""

    def __init__(self, **asked: Any) -> None:  # noqa: ANN401 - any keys of Settings
        self.plan = plan_of(Settings.model_validate({**LEAST, **asked}))
        self.values = source.source_values(self.plan)
        self.text = render_text(TEMPLATE, {"source": self.values})
        self.hcl = parse_hcl(self.text)

    @functools.cached_property
    def named(self) -> dict[str, str]:
        return source_attributes(self.text, "azure", self.values)

    @property
    def attributes(self) -> dict[str, str]:
        return {name: value for name, value in self.named.items() if value != NULL}

    @property
    def variables(self) -> dict[str, Any]:
        return {name.strip('"'): body for block in self.hcl["variable"] for name, body in block.items()}

    def said(self, name: str) -> Any:  # noqa: ANN401 - a value of the settings
        """A value that the tree decides; any other expression as it stands."""
        value = self.attributes.get(name, '"absent"')
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value


@functools.cache
def rendered(name: str) -> Rendered:
    return Rendered(**BY_NAME[name])


@pytest.mark.parametrize(("name", "expected"), [(name, expected) for name, _, expected in CASES])
def test_what_is_asked_for_reaches_its_attribute(name: str, expected: dict[str, Any]) -> None:
    assert {attribute: rendered(name).said(attribute) for attribute in expected} == expected


def test_types_name_exactly_what_is_given() -> None:
    for name in BY_NAME:
        found = rendered(name)
        said = found.variables["azure"]["type"]
        within = dict(re.findall(r"([a-z_]+) = object\(\{([^{}]*)\}\)", said))
        outer = re.sub(r"= object\(\{[^{}]*\}\)", "= object", said)
        assert set(re.findall(r"([a-z_]+) = ", outer)) == set(found.values), name
        assert {key: set(re.findall(r"([a-z_]+) = ", text)) for key, text in within.items()} == {
            key: set(value) for key, value in found.values.items() if isinstance(value, dict)
        }, name


def test_what_is_not_asked_for_does_not_reach_packer() -> None:
    least = rendered("least")
    always = {"location", "vm_sizes", "premium_sizes", "resource_group", "gallery", "definition", "storage", "version"}
    assert {name for name, value in least.values.items() if value is not None} == always
    extra = {attribute for _, _, expected in CASES[2:] for attribute in expected}
    credentials = {"client_id", "client_secret", "tenant_id", "subscription_id"}
    assert extra & set(least.attributes) == {"location", *credentials}


def _since(path: str) -> Version:
    block, _, inner = path.rpartition(".")
    attribute = ATTRIBUTES[SECTIONS[block]][inner] if block else ATTRIBUTES["Config"][inner]
    assert "until" not in attribute, f"{path} is gone from the plugin"
    return Version(attribute["since"])


def test_the_plugin_asked_for_has_every_attribute() -> None:
    for name in BY_NAME:
        found = rendered(name)
        since = Version(source.plugin_since(found.plan.settings, VERSIONS))
        assert {path for path in found.named if _since(path) > since} == set(), name


def test_these_cases_see_every_line_of_the_template() -> None:
    lines = {line.strip() for name in BY_NAME for line in rendered(name).text.splitlines()}
    wanted = {line.strip() for line in TEMPLATE.splitlines() if not re.search(r"\{%|\{\{", line)}
    assert wanted - lines == set()


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (NOTHING, "1.4.5"),
        (BY_NAME["network"] | BY_NAME["spot"] | BY_NAME["encryption"] | BY_NAME["secret"], "1.4.5"),
        ({"build_resource_group": "builds"}, "2.0.0"),
        (BY_NAME["group"], "2.0.1"),
        (BY_NAME["trusted"], "2.0.5"),
        (BY_NAME["cli"], "2.2.1"),
        (BY_NAME["cli"] | BY_NAME["trusted"], "2.2.1"),
        # With imagegen's own and two labels these are 15, the most that older plugins take.
        ({"tags": {"a": ""}}, "1.4.5"),
        ({"tags": {"a": "", "b": ""}} | BY_NAME["cli"], "2.5.1"),
    ],
)
def test_the_plugin_is_as_new_as_what_is_asked_for(asked: dict[str, Any], version: str) -> None:
    assert source.plugin_since(Rendered(**asked).plan.settings, VERSIONS) == version


@pytest.mark.parametrize(("rule", "number"), [("date", ""), ("kubernetes", "1.35.6"), ("1.2.3", "1.2.3")])
def test_the_config_says_the_number_where_it_can(rule: str, number: str) -> None:
    settings = Settings.model_validate({**LEAST, "gallery": {**GALLERY, "version": rule}})
    assert source.source_values(plan_of(settings))["version"] == number


def test_a_plain_packer_build_numbers_as_imagegen_does() -> None:
    (own,) = rendered("least").hcl["locals"]
    assert own["chance"].endswith(f" % {gallery.PER_SECOND}}}")
    assert f"local.time_of_day * {gallery.PER_SECOND} + local.chance" in own["version_of_run"]


def test_a_plan_says_what_a_run_needs_to_know() -> None:
    azure = provider.PROVIDER
    sizes = Rendered(vm_sizes=["Standard_D4s_v5", "Standard_D4as_v5"]).plan.settings
    assert azure.builder_sizes(sizes) == ["Standard_D4s_v5", "Standard_D4as_v5"]
    named = rendered("secret").plan.settings
    assert [provider.secret_variables(settings) for settings in (sizes, named)] == [
        {"IDENTITY_HEADER"},
        {"IDENTITY_HEADER", "IMAGES_SECRET"},
    ]
    assert azure.plugin_for(rendered("trusted").plan.settings, VERSIONS).lowest == "2.0.5"


def plan_of(settings: Settings) -> BuildPlan[Settings]:
    image = SimpleNamespace(versions=VERSIONS)
    return cast("BuildPlan[Settings]", SimpleNamespace(image=image, settings=settings))


def _from_environment(found: Rendered) -> dict[str, str]:
    return {
        name: str(body["default"])
        for name, body in found.variables.items()
        if str(body.get("default")).startswith("${env(")
    }


@pytest.mark.parametrize(
    ("auth", "names"),
    [
        (NOTHING, {"client_id", "client_secret", "tenant_id", "subscription_id"}),
        ({"client_secret_env": "IMAGES_SECRET"}, {"client_id", "tenant_id", "subscription_id"}),
        ({"subscription_id": SUBSCRIPTION}, {"client_id", "client_secret", "tenant_id"}),
        ({"method": "cli"}, {"subscription_id"}),
        ({"method": "cli", "subscription_id": SUBSCRIPTION}, set()),
    ],
)
def test_only_credentials_that_count_are_read(auth: dict[str, Any], names: set[str]) -> None:
    found = Rendered(auth=auth)
    wanted = {f"{family}_{name}": f"{family}_{name}".upper() for family in ("azure", "arm") for name in names}
    if "client_secret_env" in auth:
        wanted |= {"client_secret": auth["client_secret_env"]}
    assert _from_environment(found) == {name: f'${{env("{variable}")}}' for name, variable in wanted.items()}
    secret = {name for name, body in found.variables.items() if body.get("sensitive") is True}
    assert secret == {name for name in wanted if name.endswith("secret")}
    (own,) = found.hcl["locals"]
    said = "${var.azure.subscription_id}" if "subscription_id" in auth else SUBSCRIPTION_OF_FAMILIES
    assert own["subscription_id"] == said
    assert found.attributes["subscription_id"] == "local.subscription_id"


def test_a_name_cannot_leave_its_literal() -> None:
    values = rendered("secret").values | {"client_secret_env": 'X") ${evil'}
    with pytest.raises(TemplateError, match="literal"):
        render_text(TEMPLATE, {"source": values})


def _leaves(model: type[Strict], under: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kinds = [kind for kind in (field.annotation, *getattr(field.annotation, "__args__", ())) if _is_model(kind)]
        if kinds:
            yield from _leaves(kinds[0], f"{under}{name}.")
        else:
            yield under + name


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_fields")


# Each key of Settings: another value than the one below, and the part of the plan that it changes.
COMPLETE: dict[str, Any] = {
    **LEAST,
    **{"spot": {"max_price": "1"}, "network": {}, "auth": {}},
    "base_image": {"offer": "windowsserver2022", "sku": "own"},
}
OTHER: dict[str, tuple[Any, str]] = {
    "location": ("westus", "base build"),
    "vm_sizes": (["Standard_D8s_v5"], "build"),
    "generation": (1, "base"),
    "security_type": ("TrustedLaunch", "build"),
    "spot.max_price": ("0.25", "build"),
    "network.virtual_network": ("net", "build"),
    "network.subnet": ("builders", "build"),
    "network.resource_group": ("nets", "build"),
    "network.public_address": (True, "build"),
    "network.allowed_cidrs": (["198.51.100.0/24"], "build"),
    "build_resource_group": ("builds", "build"),
    "key_vault": ("builds", "build"),
    "base_image.publisher": ("Contoso", "base"),
    "base_image.offer": ("other", "base"),
    "base_image.sku": ("other", "base"),
    "base_image.version": ("20348.1.1", "base"),
    "disk_size_gb": (80, "build"),
    "disk_encryption_set": (KEYS, "build"),
    "auth.method": ("cli", "build"),
    "auth.subscription_id": (SUBSCRIPTION, "build"),
    "auth.client_secret_env": ("IMAGES_SECRET", "build"),
    "licence_type": ("Windows_Server", "build"),
    # In the image: tests/data/key-effects.json.
    "wire_server_users": (["monitoring"], ""),
    "tags": ({"team": "platform"}, "build"),
    "gallery.resource_group": ("other", "build"),
    "gallery.name": ("other", "build"),
    "gallery.definition": ("other", "build"),
    "gallery.version": ("1.2.3", "publish"),
    "gallery.storage": ("Premium_LRS", "build"),
    "publish.regions": (["westus3"], "publish"),
    "publish.replicas": (3, "publish"),
}
# What the config has already where a key needs others.
OWN_NETWORK = {"network": {"virtual_network": "old", "subnet": "old", "resource_group": "old"}}
BESIDE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("network.subnet", "network.resource_group", "network.public_address"), OWN_NETWORK),
    "key_vault": {"build_resource_group": "builds"},
}
UNIMPLEMENTED = re.compile(r"publish\.(sharing\..*|end_of_life_after_days|keep_newest)")


def test_every_key_is_here() -> None:
    assert {key for key in _leaves(Settings) if not UNIMPLEMENTED.fullmatch(key)} - {"provider"} == set(OTHER)


def test_each_key_changes_its_part_and_no_other() -> None:
    for key, (value, parts) in OTHER.items():
        asked = json.loads(json.dumps(COMPLETE | BESIDE.get(key, {})))
        before = _parts(asked)
        *above, last = key.split(".")
        functools.reduce(lambda found, name: found.setdefault(name, {}), above, asked)[last] = value
        after = _parts(asked)
        changed = {part for part in before if before[part] != after[part]}
        if key == "tags":
            # The tree's own map of tags is every cloud's, and not the source's.
            changed.add("tree")
        # What changes how an image is made and no byte of the tree would be a setting without effect.
        assert changed == {*parts.split(), *(["tree"] if "build" in parts else [])}, key


def _parts(asked: dict[str, Any]) -> dict[str, Any]:
    settings = Settings.model_validate(asked)
    # A plan of that number: its value in the tree is of no part of the plan but `publish`.
    values = source.source_values(plan_of(settings)) | {"version": ""}
    return {
        "base": source.base_request(settings, {}),
        "build": settings.build_json(),
        "publish": settings.publish_json(),
        "tree": [values, render_text(TEMPLATE, {"source": values})],
    }
