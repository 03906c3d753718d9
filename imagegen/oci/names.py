"""Container images as a lock and a mirror name them, and which of them a Windows build runs. Pure.

A lock and the index of a mirror are untrusted input.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol, TypeVar

import pydantic

from imagegen.base.hosts import ANY_HOST, HostPolicy
from imagegen.steps.resource import ImageDigest, Sha256, Strict

if TYPE_CHECKING:
    from imagegen.steps.image_name import ImageName

# 10.0 and then the build: the first three numbers of os.version.
_BUILD: Final = 2

# As much as a registry may answer.
_LONGEST_INDEX: Final = 8 * 2**20


@dataclasses.dataclass(frozen=True)
class ImageRequest:
    """An image that the machine must have, and the Windows builds whose images it can run, the best first."""

    name: ImageName
    builds: tuple[int, ...]
    mirrors: tuple[str, ...]
    """The URLs of the mirrors of its registry, in their order."""
    asks_registry: bool = True
    """Whether the registry itself may be asked."""
    isolated_builds: tuple[int, ...] = ()
    """Older builds, the newest first, whose images the machine can run only with Hyper-V isolation."""
    hosts: HostPolicy = ANY_HOST
    """The hosts that may be asked for a token."""
    mirror: str = ""
    """The URL of the mirror of all downloads that has the image: then no registry is asked. Empty if it is pulled."""


OsVersion = Annotated[str, pydantic.StringConstraints(pattern=r"^(10\.0\.[0-9]{5}(\.[0-9]{1,6})?)?$")]
"""Empty if an image does not depend on the Windows build."""

Size = Annotated[int, pydantic.Field(ge=0, lt=2**40)]


class LockedImage(Strict):
    """One container image: what its name meant, and what a machine with this Windows unpacks of it."""

    digest: ImageDigest
    """Of its index, or of its manifest if it has no index."""
    manifest: ImageDigest
    os_version: OsVersion
    """Of the manifest."""
    windows_build: Annotated[int, pydantic.Field(ge=10240, le=99999)]
    """Of the machine that it was looked up for."""
    config: ImageDigest
    """Of its configuration: the id that Docker gives to the image."""
    layers: ImageDigest
    """The chain id of its layers: under this name containerd keeps them when they are unpacked."""
    size: Size
    """Of its compressed layers, in bytes."""
    index: Annotated[str, pydantic.Field(max_length=_LONGEST_INDEX)] | None = None
    """The index of an image that is named by its digest and comes from a mirror. It proves that the manifest is one of
    this digest: no runtime sees the index."""

    def answers(self, request: ImageRequest) -> bool:
        """Whether this entry was looked up for this machine, and has the digest of the name."""
        runs = not self.os_version or build_of(self.os_version) in (*request.builds, *request.isolated_builds)
        is_wanted = request.name.digest in ("", self.digest)
        if request.mirror and request.name.digest and not self._is_proven():
            return False
        return runs and self.windows_build == request.builds[0] and is_wanted

    def _is_proven(self) -> bool:
        if self.manifest == self.digest:
            return True
        index = self.index or ""
        if f"sha256:{hashlib.sha256(index.encode()).hexdigest()}" != self.digest:
            return False
        try:
            return self.manifest in [row["digest"] for row in json.loads(index)["manifests"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            # Whatever has this digest is no index.
            return False

    def needs_isolation(self, request: ImageRequest) -> bool:
        """Whether the machine can run it only with Hyper-V isolation."""
        return bool(self.os_version) and build_of(self.os_version) not in request.builds


def build_of(os_version: str) -> int:
    numbers = os_version.split(".")
    return int(numbers[_BUILD]) if len(numbers) > _BUILD and numbers[_BUILD].isdigit() else 0


def chain_id(diffs: Iterable[str]) -> str:
    """https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid."""
    chain = ""
    for diff in diffs:
        chain = f"sha256:{hashlib.sha256(f'{chain} {diff}'.encode()).hexdigest()}" if chain else diff
    return chain


class _HasVersion(Protocol):
    @property
    def os_version(self) -> str: ...


_PlatformT = TypeVar("_PlatformT", bound=_HasVersion)


def best_platform(builds: Iterable[int], offered: Sequence[_PlatformT]) -> _PlatformT | None:
    """Of the first build that is offered the newest version; of none of them, what does not depend on the build."""
    choices = [[one for one in offered if build_of(one.os_version) == build] for build in builds]
    for found in filter(None, choices):
        return max(found, key=lambda one: [int(number) for number in re.findall("[0-9]+", one.os_version)])
    return next((one for one in offered if not one.os_version), None)


INDEX: Final = "index.json"
IMAGES: Final = "oci"
_MOST_ENTRIES: Final = 200_000
_SHORT_DIGEST: Final = 12

Path = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=4096)]
Text = Annotated[str, pydantic.StringConstraints(max_length=4096)]
StoredSize = Annotated[int, pydantic.Field(ge=0, lt=2**43)]


class IndexedFile(Strict):
    """A file of the mirror, by its path."""

    url: Text
    """Its public URL, or that of the config."""
    sha256: Sha256
    size: StoredSize
    when: Text
    """When it was copied: RFC 3339 in UTC."""


class IndexedTarball(Strict):
    """The tarball from which a machine imports a container image."""

    path: Path
    sha256: Sha256
    size: StoredSize


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
    size: StoredSize
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
