"""The values of the source template of a plan, and the version of the plugin that it requires. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from imagegen.providers.azure.numbering import fixed_version
from imagegen.providers.azure.settings import Settings
from imagegen.providers.azure.tags import MANY_TAGS_SINCE, has_many_tags

if TYPE_CHECKING:
    from imagegen.plan.model import BuildPlan

LOWEST_PLUGIN: Final = "1.4.5"
# Earlier versions do not delete the disk of a build in the operator's own group.
_BUILD_GROUP_SINCE: Final = "2.0.0"
# Earlier versions accept no name for the secret, but each run needs its own: a deleted one blocks its name for weeks.
_KEY_VAULT_SINCE: Final = "2.0.1"
# The first version with the attribute security_type.
_SECURITY_TYPE_SINCE: Final = "2.0.5"
# Earlier versions ignore the subscription of the template and use that of `az` (issue #465).
_CLI_SINCE: Final = "2.2.1"


def source_values(plan: BuildPlan[Settings]) -> dict[str, object]:
    """The variable of the template: the settings, and the gallery version if the config decides it.

    None means not set.
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
        # In Azure, -1 means up to the price on demand.
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
    """The lowest version of the plugin that supports the settings and the tags of the components."""
    needed = {
        LOWEST_PLUGIN: True,
        _BUILD_GROUP_SINCE: settings.build_resource_group,
        _KEY_VAULT_SINCE: settings.key_vault,
        _SECURITY_TYPE_SINCE: settings.security_type != "Standard",
        _CLI_SINCE: settings.auth.method == "cli",
        MANY_TAGS_SINCE: has_many_tags(settings, versions),
    }
    return max((version for version, is_needed in needed.items() if is_needed), key=Version)
