"""Settings in; what the source template and the client need of them, as plain JSON, out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.providers.azure.settings import Settings

PLUGIN_SINCE: Final = "1.4.5"
# Before it every build left its disk behind in a group that outlives it: it took it for a file of a storage account.
_BUILD_GROUP_SINCE: Final = "2.0.0"
# The first to take a name for the secret: one that is deleted blocks its name for weeks, so each run needs its own.
_KEY_VAULT_SINCE: Final = "2.0.1"
# The first with an attribute of that name.
_SECURITY_TYPE_SINCE: Final = "2.0.5"
# Before it the subscription was the one that `az` had chosen, whatever the template said (its #465).
_CLI_SINCE: Final = "2.2.1"
# Before it 15 tags were the most (its #552).
_MANY_TAGS_SINCE: Final = "2.5.1"
_FEW_TAGS: Final = 15
# imagegen's own beside one for each version, and room for two labels of a run.
_OWN_TAGS: Final = 9 + 2


def build_settings(settings: Settings) -> dict[str, Any]:
    """How the image is made on Azure."""
    asked = settings.model_dump(mode="json", exclude={"base_image", "generation", "gallery", "publish"})
    network = asked["network"]
    gallery = settings.gallery
    return {
        **asked,
        "allowed_cidrs": network.pop("allowed_cidrs"),
        "resource_group": gallery.resource_group,
        "gallery": gallery.name,
        "definition": gallery.definition,
        "storage": gallery.storage,
    }


def source_values(build: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The template's own variable; None is what was not asked for."""
    always = ("location", "vm_sizes", "resource_group", "gallery", "definition", "storage")
    optional = ("build_resource_group", "key_vault", "disk_size_gb", "disk_encryption_set", "licence_type")
    security, spot = build["security_type"], build["spot"]
    return {
        **{name: build[name] for name in (*always, *optional)},
        "version": version,
        "allowed_cidrs": build["allowed_cidrs"] or None,
        "security_type": None if security == "Standard" else security,
        # -1 is Azure's word for no limit but the ordinary price.
        "spot_max_price": None if spot is None else float(spot["max_price"] or -1),
        **_network(build["network"]),
        **_sign_in(build["auth"]),
    }


def _network(network: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "virtual_network": network["virtual_network"],
        "subnet": network["subnet"],
        "network_resource_group": network["resource_group"],
        "public_address": network["public_address"] or None,
    }


def _sign_in(auth: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "use_azure_cli_auth": True if auth["method"] == "cli" else None,
        "subscription_id": auth["subscription_id"],
        "client_secret_env": auth["client_secret_env"],
    }


def plugin_since(build: Mapping[str, Any], versions: int) -> str:
    """The lowest version of the plugin that does what is asked for; `versions` is how many of them become tags."""
    needed = [PLUGIN_SINCE]
    if build["build_resource_group"]:
        needed.append(_BUILD_GROUP_SINCE)
    if build["key_vault"]:
        needed.append(_KEY_VAULT_SINCE)
    if build["security_type"] != "Standard":
        needed.append(_SECURITY_TYPE_SINCE)
    if build["auth"]["method"] == "cli":
        needed.append(_CLI_SINCE)
    if len(build["tags"]) + _OWN_TAGS + versions > _FEW_TAGS:
        needed.append(_MANY_TAGS_SINCE)
    return max(needed, key=Version)
