"""The package URLs (https://github.com/package-url/purl-spec) of what an image is made of. Pure.

The manifest says which product of the catalogue an artifact is. An artifact that is none, or that came from another
address, is a generic package, named with its address and digest: its bytes are those of whoever put them there.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from packageurl import PackageURL

from imagegen.catalog.products import find_product
from imagegen.fetch.lock import LockedBase
from imagegen.record.manifest import RecordedArtifact
from imagegen.steps.image_name import ImageName

_SCHEME: Final = "https://"


@dataclasses.dataclass(frozen=True)
class Release:
    """The release that an artifact is."""

    version: str
    purl: str
    supplier: str
    licence: str


def find_release(artifact: RecordedArtifact) -> Release | None:
    """The release of the product that the manifest names. None if it names none that the catalogue has."""
    product, version = find_product(artifact.product or ""), artifact.version
    if product is None or version is None:
        return None
    return Release(version, product.purl.replace("{version}", version), product.supplier, product.licence)


def is_public(artifact: RecordedArtifact) -> bool:
    """Whether the bytes came from the public address, or from a mirror of it, which has the address in its own."""
    release = artifact.release
    return release is None or artifact.url.endswith(f"/{release.removeprefix(_SCHEME)}")


def artifact_purl(name: str, artifact: RecordedArtifact) -> PackageURL:
    """The package URL of an artifact: that of its release, if the bytes are the public ones."""
    release = find_release(artifact)
    if release is not None and is_public(artifact):
        return PackageURL.from_string(release.purl)
    return PackageURL(
        "generic",
        name=name,
        version=release.version if release else None,
        qualifiers={"checksum": f"sha256:{artifact.sha256}", "download_url": artifact.url},
    )


def image_purl(name: str, digest: str) -> PackageURL:
    """The package URL of a container image, by its whole name and the digest by which it is used."""
    parts = ImageName.parse(name)
    repository = f"{parts.registry}/{parts.repository}"
    return PackageURL(
        "oci",
        name=parts.repository.rpartition("/")[2].lower(),
        version=digest,
        qualifiers={"repository_url": repository, **({"tag": parts.tag} if parts.tag else {})},
    )


def base_purl(provider: str, base: LockedBase) -> PackageURL:
    """A package URL for a base image: what identifies it in its cloud, and its place there."""
    return PackageURL("generic", provider, "base-image", qualifiers={**base.identity, **base.place})


def base_name(base: LockedBase) -> str:
    """A base image in words, from what identifies it."""
    return " ".join(value for _, value in sorted(base.identity.items()))
