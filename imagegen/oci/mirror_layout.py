"""What `imagegen artifacts mirror` writes and a lookup reads: where container images are in a mirror, and the model of
its index. Pure.

An index is untrusted input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import pydantic

from imagegen.steps.resource import ImageDigest, Sha256, Strict

if TYPE_CHECKING:
    from imagegen.steps.image_name import ImageName

INDEX: Final = "index.json"
IMAGES: Final = "oci"
_MOST_ENTRIES: Final = 200_000
_SHORT_DIGEST: Final = 12

Path = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=4096)]
Text = Annotated[str, pydantic.StringConstraints(max_length=4096)]
Size = Annotated[int, pydantic.Field(ge=0, lt=2**43)]


class IndexedFile(Strict):
    """A file of the mirror, by its path."""

    url: Text
    """Its public URL, or that of the config."""
    sha256: Sha256
    size: Size
    when: Text
    """When it was copied: RFC 3339 in UTC."""


class IndexedTarball(Strict):
    """The tarball from which a machine imports a container image."""

    path: Path
    sha256: Sha256
    size: Size


class IndexedImage(Strict):
    """A container image for one Windows."""

    name: Text
    """Its whole name."""
    digest: ImageDigest
    """What the name meant: of its index, or of its manifest if it has no index."""
    manifest: ImageDigest
    os_version: Text
    path: Path
    """The folder with its layout."""
    size: Size
    """Of its compressed layers, in bytes."""
    tarball: IndexedTarball | None
    """None for an image that is too large for a tarball."""
    when: Text


class Index(Strict):
    """Everything in a mirror."""

    index_version: Literal[1] = 1
    files: Annotated[dict[Path, IndexedFile], pydantic.Field(max_length=_MOST_ENTRIES)] = {}
    images: Annotated[dict[Text, IndexedImage], pydantic.Field(max_length=_MOST_ENTRIES)] = {}
    """By name and digest of the manifest: a name may mean several images, for other versions of Windows."""


def image_key(name: str, manifest: str) -> str:
    """The key of an image in the index."""
    return f"{name} {manifest}"


def image_folder(name: ImageName, manifest: str) -> str:
    """Where the layout of a container image is. `manifest` is the digest of its manifest."""
    return f"{_repository(name)}/{manifest.replace(':', '-')}"


def blob_path(digest: str) -> str:
    """Where a document or a layer is in a layout."""
    return f"blobs/{digest.replace(':', '/')}"


def tarball_path(name: ImageName, manifest: str) -> str:
    """Where the tarball of a container image is: a name may mean another image later."""
    shown = name.tag or f"sha256-{_short(name.digest)}"
    return f"{_repository(name)}/{shown}-{_short(manifest)}.tar"


def _short(digest: str) -> str:
    return digest.partition(":")[2][:_SHORT_DIGEST]


def _repository(name: ImageName) -> str:
    # A registry and a repository have the form of the config, so that no part leads out.
    return f"{IMAGES}/{name.registry}/{name.repository}"
