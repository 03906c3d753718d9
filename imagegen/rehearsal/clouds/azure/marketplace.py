"""Marketplace images: the versions of an offer's SKU, and the image reference of a machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from packaging.version import Version

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.options import PUBLISHER, generation
from imagegen.rehearsal.clouds.azure.resources import Resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.state import AzureState, Call


@dataclasses.dataclass(frozen=True)
class ImageReference:
    """An existing marketplace image."""

    name: str
    generation: str


def resolve(state: AzureState, reference: Resource) -> ImageReference:
    """Find the marketplace image of a machine. The version can be `latest`."""
    if any(reference.get(key) for key in ("id", "communityGalleryImageId", "sharedGalleryImageId")):
        raise ArmError(
            400,
            "InvalidParameter",
            "a rehearsal supports only marketplace images",
            fault="unexpected image reference by id",
        )
    publisher, offer, sku = (str(reference.get(key, "")) for key in ("publisher", "offer", "sku"))
    versions = _versions(state, publisher, offer, sku)
    version = str(reference.get("version", ""))
    if version.lower() == "latest":
        version = max(versions, key=Version)
    if version not in versions:
        raise ArmError(
            404, "PlatformImageNotFound", f"The platform image '{publisher}:{offer}:{sku}:{version}' is not available."
        )
    return ImageReference(f"{publisher}:{offer}:{sku}:{version}", generation(sku))


def list_skus(state: AzureState, call: Call) -> Response:
    base = _base(call)
    offer = call.names["offer"].lower()
    skus = sorted(sku for known, sku in state.options.marketplace if known == offer)
    if call.names["publisher"].lower() != PUBLISHER.lower() or not skus:
        raise ArmError(404, "NotFound", f"Artifact: VMImage was not found: offer {call.names['offer']}.")
    return Response.of_json(200, [{"id": f"{base}/{sku}", "name": sku, "location": _location(call)} for sku in skus])


def list_versions(state: AzureState, call: Call) -> Response:
    """List versions as a plain array, which this API returns. Supports `$orderby=name desc` and `$top`."""
    versions = sorted(_versions(state, call.names["publisher"], call.names["offer"], call.names["sku"]), key=Version)
    query = call.request.query
    if query.get("$orderby", "").lower() == "name desc":
        versions.reverse()
    top = query.get("$top", "")
    selected = versions[: int(top)] if top.isdigit() else versions
    base = f"{_base(call)}/{call.names['sku']}/Versions"
    return Response.of_json(
        200, [{"id": f"{base}/{version}", "name": version, "location": _location(call)} for version in selected]
    )


def get_version(state: AzureState, call: Call) -> Response:
    publisher, offer, sku = (call.names[key] for key in ("publisher", "offer", "sku"))
    name = call.names["version"]
    reference = resolve(state, {"publisher": publisher, "offer": offer, "sku": sku, "version": name})
    version = reference.name.rpartition(":")[2]
    properties = {
        "hyperVGeneration": reference.generation,
        "architecture": "x64",
        "osDiskImage": {"operatingSystem": "Windows"},
        "dataDiskImages": [],
        "imageDeprecationStatus": {"imageState": "Active"},
    }
    body = {
        "id": f"{_base(call)}/{sku}/Versions/{version}",
        "name": version,
        "location": _location(call),
        "properties": properties,
    }
    return Response.of_json(200, body)


def _versions(state: AzureState, publisher: str, offer: str, sku: str) -> list[str]:
    versions = state.options.marketplace.get((offer.lower(), sku.lower()))
    if publisher.lower() != PUBLISHER.lower() or not versions:
        raise ArmError(404, "NotFound", f"Artifact: VMImage was not found: {publisher}:{offer}:{sku}.")
    return list(versions)


def _location(call: Call) -> str:
    return region(call.names["location"])


def _base(call: Call) -> str:
    return (
        f"/Subscriptions/{call.names['subscription']}/Providers/Microsoft.Compute/Locations/{_location(call)}"
        f"/Publishers/{call.names['publisher']}/ArtifactTypes/VMImage/Offers/{call.names['offer']}/Skus"
    )
