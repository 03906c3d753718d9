"""A plan in; the values of its source template, and the plugin that it needs, out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from packaging.version import Version

from imagegen.providers.azure.numbering import fixed_version
from imagegen.providers.azure.tags import MANY_TAGS_SINCE, has_many_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.plan.model import BuildPlan
    from imagegen.providers.azure.settings import Settings

LOWEST_PLUGIN: Final = "1.4.5"
# Before it every build left its disk behind in a group that outlives it: it took it for a file of a storage account.
_BUILD_GROUP_SINCE: Final = "2.0.0"
# The first to take a name for the secret: one that is deleted blocks its name for weeks, so each run needs its own.
_KEY_VAULT_SINCE: Final = "2.0.1"
# The first with an attribute of that name.
_SECURITY_TYPE_SINCE: Final = "2.0.5"
# Before it the subscription was the one that `az` had chosen, whatever the template said (its #465).
_CLI_SINCE: Final = "2.2.1"


def source_values(plan: BuildPlan[Settings]) -> dict[str, object]:
    """The template's own variable: the settings, and the gallery version where the config alone decides it.

    None is what was not asked for.
    """
    settings, gallery = plan.settings, plan.settings.gallery
    network, auth = settings.network, settings.auth
    return {
        "location": settings.location,
        "vm_sizes": settings.vm_sizes,
        "resource_group": gallery.resource_group,
        "gallery": gallery.name,
        "definition": gallery.definition,
        "storage": gallery.storage,
        "version": fixed_version(plan) or "",
        "build_resource_group": settings.build_resource_group,
        "key_vault": settings.key_vault,
        "disk_size_gb": settings.disk_size_gb,
        "disk_encryption_set": settings.disk_encryption_set,
        "licence_type": settings.licence_type,
        "allowed_cidrs": network.allowed_cidrs or None,
        "security_type": None if settings.security_type == "Standard" else settings.security_type,
        # -1 is Azure's word for no limit but the ordinary price.
        "spot_max_price": float(settings.spot.max_price or -1) if settings.spot else None,
        "virtual_network": network.virtual_network,
        "subnet": network.subnet,
        "network_resource_group": network.resource_group,
        "public_address": network.public_address or None,
        "use_azure_cli_auth": True if auth.method == "cli" else None,
        "subscription_id": auth.subscription_id,
        "client_secret_env": auth.client_secret_env,
    }


def plugin_since(settings: Settings, versions: Mapping[str, str]) -> str:
    """The lowest version of the plugin that does what is asked for; the components' versions become tags."""
    needed = [LOWEST_PLUGIN]
    if settings.build_resource_group:
        needed.append(_BUILD_GROUP_SINCE)
    if settings.key_vault:
        needed.append(_KEY_VAULT_SINCE)
    if settings.security_type != "Standard":
        needed.append(_SECURITY_TYPE_SINCE)
    if settings.auth.method == "cli":
        needed.append(_CLI_SINCE)
    if has_many_tags(settings, versions):
        needed.append(MANY_TAGS_SINCE)
    return max(needed, key=Version)
