"""The package URLs (https://github.com/package-url/purl-spec) of what an image is made of. Pure.

The catalogue knows public releases by their addresses. An artifact from any other address is a generic package, named
with its address and digest: its bytes are those of whoever put them there.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from packageurl import PackageURL

from imagegen.catalog.facts import table
from imagegen.fetch.lock import LockedBase
from imagegen.record.manifest import RecordedArtifact
from imagegen.steps.image_name import ImageName

_SCHEME: Final = "https://"
# No slash: a version is one part of an address.
_VERSION: Final = r"(?P<version>[0-9A-Za-z][0-9A-Za-z._+-]*)"


@dataclasses.dataclass(frozen=True)
class Release:
    """The release that an artifact is, as its address says."""

    version: str
    purl: str
    supplier: str
    licence: str


@functools.cache
def _addresses() -> list[tuple[re.Pattern[str], Mapping[str, Any]]]:
    return [
        (re.compile(re.escape(address).replace(re.escape("{version}"), _VERSION, 1)), row)
        for row in table("products")["products"].values()
        for address in row["releases"]
    ]


def find_release(artifact: RecordedArtifact) -> Release | None:
    """The release that the catalogue knows by the public URL of an artifact. None if it knows none."""
    address = (artifact.release or artifact.url).removeprefix(_SCHEME)
    for pattern, row in _addresses():
        if match := pattern.match(address):
            version = match["version"]
            return Release(version, row["purl"].replace("{version}", version), row["supplier"], row["licence"])
    return None


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
