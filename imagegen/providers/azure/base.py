"""Looks up a marketplace image in one region: by default Microsoft's newest Windows image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from packaging.version import Version

from imagegen.artifacts.lock import BaseForm, LockedBase
from imagegen.errors import ConfigError, RefusedError
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.settings import LOCATION, RESOURCE_NAME, Settings

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import VirtualMachineImageResource

PUBLISHER = "MicrosoftWindowsServer"

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*\Z")
BASE_FORM = BaseForm(
    identity={"publisher": RESOURCE_NAME, "offer": RESOURCE_NAME, "sku": RESOURCE_NAME, "version": _VERSION.pattern},
    place={"location": LOCATION},
)


def base_request(settings: Settings, offered: Mapping[str, str]) -> dict[str, str]:
    """The request for the operator's own base image, or for the image in the catalogue."""
    own = settings.base_image
    if own is None:
        return {"location": settings.location, "publisher": PUBLISHER, "offer": offered["offer"], "sku": offered["sku"]}
    # The SKU in the catalogue implies the generation; that of other images must be looked up.
    request = {
        "location": settings.location,
        "publisher": own.publisher,
        "offer": own.offer,
        "sku": own.sku,
        "generation": str(settings.generation),
    }
    return request if own.version is None else {**request, "version": own.version}


def look_up_base(client: ComputeManagementClient, request: Mapping[str, str]) -> LockedBase:
    """Look up the newest base image that matches. Every region offers the same versions."""
    image = ":".join(request[name] for name in ("publisher", "offer", "sku", "version") if name in request)
    label = f"{image} in {request['location']}"
    hint = "check the region, and that Microsoft still offers this Windows release there"
    with explain_errors(f"looking up the base image {label}", RefusedError, missing=hint):
        images = client.virtual_machine_images.list(
            request["location"], request["publisher"], request["offer"], request["sku"]
        )
    version = _chosen(images, request.get("version"))
    if version is None:
        raise ConfigError(f"there is no base image {label}", hint=hint)
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
    with explain_errors(f"reading the base image {label}", RefusedError):
        generation = client.virtual_machine_images.get(
            request["location"], request["publisher"], request["offer"], request["sku"], version
        ).hyper_v_generation
    if generation is not None and generation != f"V{request['generation']}":
        raise ConfigError(
            f"the base image {label} has generation {generation.removeprefix('V')}, not {request['generation']}",
            hint="set targets.azure.generation to the image's generation, or choose its sku of the other generation",
        )
