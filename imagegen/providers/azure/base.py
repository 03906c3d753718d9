"""The newest version of Microsoft's Windows image that a config means, looked up in one region's marketplace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from imagegen.artifacts.lock import LockedBase
from imagegen.errors import ConfigError, RefusedError
from imagegen.providers.azure.client import explained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from azure.mgmt.compute import ComputeManagementClient

    from imagegen.providers.azure.settings import Settings

PUBLISHER = "MicrosoftWindowsServer"

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*\Z")


def base_request(settings: Settings, windows: Mapping[str, Any]) -> dict[str, str]:
    """What to ask for; offer and SKU are the catalogue's."""
    azure = windows["azure"]
    return {"location": settings.location, "publisher": PUBLISHER, "offer": azure["offer"], "sku": azure["sku"]}


def look_up_base(client: ComputeManagementClient, request: Mapping[str, str]) -> LockedBase:
    """The image as a lock holds it: the same version is offered in every region."""
    asked = f"{request['publisher']}:{request['offer']}:{request['sku']} in {request['location']}"
    hint = "check the region, and that this Windows release is still offered there: Microsoft withdraws old ones"
    with explained(f"looking up the base image {asked}", RefusedError, missing=hint):
        images = client.virtual_machine_images.list(
            request["location"], request["publisher"], request["offer"], request["sku"]
        )
    versions = [image.name for image in images if _VERSION.match(image.name)]
    if not versions:
        raise ConfigError(f"there is no base image {asked}", hint=hint)
    # As numbers: Azure sorts them as texts, where 1000 comes before 999.
    newest = max(versions, key=lambda version: tuple(int(part) for part in version.split(".")))
    identity = {name: request[name] for name in ("publisher", "offer", "sku")}
    return LockedBase(
        request=dict(request), identity={**identity, "version": newest}, place={"location": request["location"]}
    )
