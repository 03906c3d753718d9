"""The marketplace image that a config means, looked up in one region: Microsoft's newest or one's own choice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import Version

from imagegen.artifacts.lock import BaseForm, LockedBase
from imagegen.errors import ConfigError, RefusedError
from imagegen.providers.azure.failures import explained
from imagegen.providers.azure.settings import LOCATION, RESOURCE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import VirtualMachineImageResource

    from imagegen.providers.azure.settings import Settings

PUBLISHER = "MicrosoftWindowsServer"

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*\Z")
BASE_FORM = BaseForm(
    identity={"publisher": RESOURCE_NAME, "offer": RESOURCE_NAME, "sku": RESOURCE_NAME, "version": _VERSION.pattern},
    place={"location": LOCATION},
)


def base_request(settings: Settings, offered: Mapping[str, str]) -> dict[str, str]:
    """What to ask for; offer and SKU are the catalogue's, unless the config names an image of its own."""
    own = settings.base_image
    if own is None:
        return {"location": settings.location, "publisher": PUBLISHER, "offer": offered["offer"], "sku": offered["sku"]}
    # The catalogue's names say the generation; of any other image Azure has to tell it.
    request = {
        "location": settings.location,
        "publisher": own.publisher,
        "offer": own.offer,
        "sku": own.sku,
        "generation": str(settings.generation),
    }
    return request if own.version is None else {**request, "version": own.version}


def look_up_base(client: ComputeManagementClient, request: Mapping[str, str]) -> LockedBase:
    """The image as a lock holds it: the same version is offered in every region."""
    image = ":".join(request[name] for name in ("publisher", "offer", "sku", "version") if name in request)
    asked = f"{image} in {request['location']}"
    hint = "check the region, and that this Windows release is still offered there: Microsoft withdraws old ones"
    with explained(f"looking up the base image {asked}", RefusedError, missing=hint):
        images = client.virtual_machine_images.list(
            request["location"], request["publisher"], request["offer"], request["sku"]
        )
    version = _chosen(images, request.get("version"))
    if version is None:
        raise ConfigError(f"there is no base image {asked}", hint=hint)
    if "generation" in request:
        _check_generation(client, request, version)
    identity = {name: request[name] for name in ("publisher", "offer", "sku")}
    return LockedBase(
        request=dict(request), identity={**identity, "version": version}, place={"location": request["location"]}
    )


def _chosen(images: Iterable[VirtualMachineImageResource], wanted: str | None) -> str | None:
    versions = [image.name for image in images if _VERSION.match(image.name)]
    if wanted is not None:
        return wanted if wanted in versions else None
    # Azure sorts them as strings, where 1000 comes before 999.
    return max(versions, key=Version, default=None)


def _check_generation(client: ComputeManagementClient, request: Mapping[str, str], version: str) -> None:
    label = f"{request['publisher']}:{request['offer']}:{request['sku']}:{version}"
    with explained(f"asking about the base image {label}", RefusedError):
        found = client.virtual_machine_images.get(
            request["location"], request["publisher"], request["offer"], request["sku"], version
        ).hyper_v_generation
    if found is not None and found != f"V{request['generation']}":
        raise ConfigError(
            f"the base image {label} is of generation {found.removeprefix('V')}, the config of {request['generation']}",
            hint="set targets.azure.generation to the image's, or choose its sku of the other generation",
        )
