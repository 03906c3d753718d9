"""Fills in what the lock says about a resource: a container image of a registry or a tarball. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from imagegen.oci.registry import find_difference, tarball_name
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.fetch.lock import Lock, LockedArtifact
    from imagegen.oci.names import ImageRequest

_SAVE: Final = "save it under this name with `docker save` of Docker 25 or later, or with `ctr images export`"


def pin_image(fields: dict[str, Any], lock: Lock, requests: Mapping[str, ImageRequest]) -> tuple[str, str] | None:
    """Fill in what the lock says about a container image, its whole name, and the tarball of a mirror that has it.
    Returns a problem with its hint."""
    image = ImageName.parse(str(fields.get("name")))
    name = fields["name"] = str(image)
    request = requests[name]
    if request.mirror:
        fields["artifact"] = tarball_name(image)
    tarball = lock.artifacts.get(str(fields.get("artifact")))
    locked = lock.images.get(name)
    if request.mirror and locked and tarball and (other := find_difference(name, locked, tarball.images)):
        return f"the tarball has {other}", f"restore the lock, or run `imagegen lock CONFIG --upgrade {name}`"
    if fields.get("artifact"):
        return _pin_tarball(fields, request, tarball)
    if locked:
        # An index would let the runtime choose a manifest: containerd finds none that needs isolation, and Docker
        # prefers none of the older builds. By a digest, Docker has an image only under the one that it was pulled by.
        by_manifest = bool(fields.get("docker")) or locked.needs_isolation(requests[str(image)])
        digest = locked.manifest if by_manifest else locked.digest
        pulled = image if fields.get("docker") and image.digest else dataclasses.replace(image, tag="", digest=digest)
        fields["reference"] = str(pulled)
        fields |= locked.model_dump(include={"layers", "size"})
        fields["digest"] = locked.config if fields.get("docker") else digest
    return None


def _pin_tarball(
    fields: dict[str, Any], request: ImageRequest, tarball: LockedArtifact | None
) -> tuple[str, str] | None:
    images = (tarball.images if tarball else None) or {}
    name, found = fields["name"], images.get(fields["name"])
    if found is None:
        has = ", ".join(sorted(images)[:12]) or "none"
        return f"the tarball has no image {name} for Windows: it has {has}", _SAVE
    variant = found.choose(request)
    if variant is None:
        has = ", ".join(sorted(one.os_version for one in found.variants))
        return f"the tarball has {name} only for Windows {has}", "save the image for the Windows release of the config"
    if not (variant.docker if fields.get("docker") else found.digest):
        return f"{'Docker' if fields.get('docker') else 'containerd'} finds no name in this tarball", _SAVE
    fields |= {"layers": variant.layers, "size": variant.size}
    fields["digest"] = variant.config if fields.get("docker") else found.digest
    return None
