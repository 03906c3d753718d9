"""Looks up container images in their registries, for the lock: with the tokens that a registry gives to everybody, or
with the credentials of the environment.

Every document is compared with its digest. As containerd does, the mirrors of a registry are asked before it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import pydantic

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.hosts import ANY_HOST, HostPolicy
from imagegen.oci.registry_client import NotThereError, RegistryClient, clients_for
from imagegen.steps.resource import ImageDigest, Strict

if TYPE_CHECKING:
    from imagegen.steps.image_name import ImageName

# 10.0 and then the build: the first three numbers of os.version.
_BUILD: Final = 2
# As much as a registry may answer.
_LONGEST_INDEX: Final = 8 * 2**20


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a registry answered. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Requests a URL with headers. `authorization`, which may be empty, is sent to the host of the URL only, and not on a
# redirect. An OSError means that the host does not answer.
Ask = Callable[[str, Mapping[str, str], str], Answer]


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


def look_up_image(request: ImageRequest, ask: Ask, credentials: str = "") -> LockedImage:
    """Look up an image at the mirrors of its registry, and then at the registry. The error is that of the registry.

    `credentials` are the registry's, in the form of HTTP's Basic scheme. No mirror gets them.
    """
    errors: list[str] = []
    for client in clients_for(request, ask, credentials):
        try:
            return find_at(request, client)
        except NotThereError as error:
            errors.append(str(error))
    raise RefusedError(
        f"{request.name} could not be looked up: {errors[-1]}",
        details=errors[:-1],
        hint="check the name of the image, and that this machine reaches the registry or one of its mirrors",
    )


def find_at(request: ImageRequest, client: RegistryClient) -> LockedImage:
    """Look up an image at one place."""
    try:
        return _read(request, client)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise VerificationError(f"{client.shown} has an image {request.name} that is not valid: {error}") from error


def _read(request: ImageRequest, client: RegistryClient) -> LockedImage:
    top = client.get("manifests", request.name.digest or request.name.tag)
    digest = f"sha256:{hashlib.sha256(top).hexdigest()}"
    if request.name.digest not in ("", digest):
        raise VerificationError(f"{client.shown} answered {digest} for {request.name}")
    document = client.parse(top, digest)
    if "manifests" not in document:
        return _of_manifest(request, client, digest, _Platform(digest, "", "", ""), document)
    if not isinstance(document["manifests"], list):
        raise ValueError("its index has no list of manifests")
    entry = _choose(request, [_platform(row) for row in document["manifests"] if isinstance(row, dict)])
    return _of_manifest(request, client, digest, entry, client.read("manifests", entry.digest))


def _of_manifest(
    request: ImageRequest, client: RegistryClient, digest: str, entry: _Platform, manifest: dict[str, Any]
) -> LockedImage:
    config_digest = str(manifest["config"]["digest"])
    config = client.read("blobs", config_digest)
    size = sum(int(layer["size"]) for layer in manifest["layers"])
    diffs = [str(one) for one in config["rootfs"]["diff_ids"]]
    os_version = entry.os_version
    if not os_version:
        # An index need not repeat the version, and a manifest without an index has it only there.
        found = _Platform(entry.digest, config["os"], config["architecture"], config.get("os.version") or "")
        os_version = _choose(request, [found]).os_version
    return LockedImage(
        digest=digest,
        manifest=entry.digest,
        os_version=os_version,
        windows_build=request.builds[0],
        config=config_digest,
        layers=chain_id(diffs),
        size=size,
    )


def chain_id(diffs: Iterable[str]) -> str:
    """https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid."""
    chain = ""
    for diff in diffs:
        chain = f"sha256:{hashlib.sha256(f'{chain} {diff}'.encode()).hexdigest()}" if chain else diff
    return chain


@dataclasses.dataclass(frozen=True)
class _Platform:
    """One manifest of an index, and the machines that it is for."""

    digest: str
    os: str
    architecture: str
    os_version: str

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}{f' {self.os_version}' if self.os_version else ''}"


def _platform(row: dict[str, Any]) -> _Platform:
    given = row.get("platform")
    known = given if isinstance(given, dict) else {}
    words = (known.get("os"), known.get("architecture"), known.get("os.version"))
    return _Platform(str(row.get("digest")), *(str(word or "") for word in words))


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


def _choose(request: ImageRequest, offered: list[_Platform]) -> _Platform:
    """The manifest for this Windows: of the best build the newest. One that needs isolation is the last choice."""
    usable = [one for one in offered if (one.os, one.architecture) == ("windows", "amd64")]
    found = best_platform(request.builds, usable) or best_platform(request.isolated_builds, usable)
    if found:
        return found
    builds = " or ".join(map(str, (*request.builds, *request.isolated_builds)))
    has = sorted({str(one) for one in offered if one.os not in ("", "unknown")})
    raise ConfigError(
        f"{request.name} has no image for Windows build {builds}: it has {', '.join(has[:8]) or 'none'}",
        hint="choose a tag for the Windows release of the config",
    )
