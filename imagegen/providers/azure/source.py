"""The source of a build: the marketplace image to start from, the values of the template, the plugin's version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.fetch.lock import BaseForm, LockedBase
from imagegen.providers.azure.disks import has_premium_storage
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.gallery import fixed_version
from imagegen.providers.azure.settings import LOCATION, RESOURCE_NAME, Settings
from imagegen.providers.azure.tags import MANY_TAGS_SINCE, has_many_tags

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient

    from imagegen.plan.model import BuildPlan

LOWEST_PLUGIN: Final = "1.4.5"
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*\Z")
BASE_FORM: Final = BaseForm(
    identity={"publisher": RESOURCE_NAME, "offer": RESOURCE_NAME, "sku": RESOURCE_NAME, "version": _VERSION.pattern},
    place={"location": LOCATION},
)


def base_request(settings: Settings, offered: Mapping[str, str]) -> dict[str, str]:
    """The request for the operator's own base image, or for the image in the catalogue. Pure."""
    own, location = settings.base_image, {"location": settings.location}
    if own is None:
        return {**location, "publisher": "MicrosoftWindowsServer", "offer": offered["offer"], "sku": offered["sku"]}
    # The SKU in the catalogue implies the generation; that of other images must be looked up.
    return {**location, **own.model_dump(exclude_none=True), "generation": str(settings.generation)}


def look_up_base(client: ComputeManagementClient, request: Mapping[str, str]) -> LockedBase:
    """Look up the newest base image that matches. Every region offers the same versions."""
    identity = {name: request[name] for name in ("publisher", "offer", "sku")}
    path = (request["location"], request["publisher"], request["offer"], request["sku"])
    label = ":".join(request[name] for name in ("publisher", "offer", "sku", "version") if name in request)
    hint = "check the region, and that Microsoft still offers this Windows release there"
    with explain_errors(f"looking up the base image {label} in {path[0]}", RefusedError, missing=hint):
        names = [image.name for image in client.virtual_machine_images.list(*path)]
    # Azure sorts them as strings, where 1000 comes before 999.
    versions = (name for name in names if _VERSION.match(name) and request.get("version", name) == name)
    version = max(versions, key=Version, default=None)
    if version is None:
        raise ConfigError(f"there is no base image {label} in {path[0]}", hint=hint)
    if wanted := request.get("generation"):
        exact = ":".join((*path[1:], version))
        with explain_errors(f"reading the base image {exact}", RefusedError):
            generation = client.virtual_machine_images.get(*path, version).hyper_v_generation
        if generation is not None and generation != f"V{wanted}":
            raise ConfigError(
                f"the base image {exact} has generation {generation.removeprefix('V')}, not {wanted}",
                hint="set targets.azure.generation to the image's generation, "
                "or choose its sku of the other generation",
            )
    return LockedBase(
        request=dict(request), identity={**identity, "version": version}, place={"location": request["location"]}
    )


def source_values(plan: BuildPlan[Settings]) -> dict[str, object]:
    """The variable of the template: the settings, and the gallery version if the config decides it. Pure.

    None means not set.
    """
    settings, gallery = plan.settings, plan.settings.gallery
    network, auth = settings.network, settings.auth
    return {
        "location": settings.location,
        "vm_sizes": settings.vm_sizes,
        "premium_sizes": [size for size in settings.vm_sizes if has_premium_storage(size)],
        "resource_group": gallery.resource_group,
        "gallery": gallery.name,
        "definition": gallery.definition,
        "storage": gallery.storage,
        "version": fixed_version(settings, plan.image.versions["kubernetes"]) or "",
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
    """The lowest version of the plugin that supports the settings and the tags of the components. Pure."""
    needed = {
        LOWEST_PLUGIN: True,
        # Earlier versions do not delete the disk of a build in the operator's own group.
        "2.0.0": settings.build_resource_group,
        # Earlier versions accept no name for the secret, but each run needs its own: a deleted one blocks its name for
        # weeks.
        "2.0.1": settings.key_vault,
        # The first version with the attribute security_type.
        "2.0.5": settings.security_type != "Standard",
        # Earlier versions ignore the subscription of the template and use that of `az` (issue #465).
        "2.2.1": settings.auth.method == "cli",
        MANY_TAGS_SINCE: has_many_tags(settings, versions),
    }
    return max((version for version, is_needed in needed.items() if is_needed), key=Version)
