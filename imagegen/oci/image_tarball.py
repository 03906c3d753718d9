"""Reads the container images of a tarball, for the lock: what containerd or Docker will have after importing it.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md, and manifest.json of `docker save`. Only the
JSON documents are read, and those of the layout are compared with their digests. Writes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic

from imagegen.base.errors import VerificationError
from imagegen.inspect.archive import LIMIT_MEMBERS, UNREADABLE, tar_members
from imagegen.oci.image_lookup import OsVersion, Size, best_platform, chain_id
from imagegen.steps.image_name import ImageName
from imagegen.steps.resource import ImageDigest, Strict

if TYPE_CHECKING:
    from imagegen.inspect.archive import ArchiveFormat
    from imagegen.oci.image_lookup import ImageRequest

# containerd names an imported image by this annotation of index.json (core/images/annotations.go).
_NAME: Final = "io.containerd.image.name"
_LARGEST_DOCUMENT: Final = 4 << 20
_ALL_DOCUMENTS: Final = 64 << 20
_BLOBS: Final = "blobs/sha256/"


class Variant(Strict):
    """An image for one Windows build."""

    os_version: OsVersion
    config: ImageDigest
    """Of its configuration: the id that Docker gives to the image."""
    layers: ImageDigest
    """The chain id of its layers."""
    size: Size
    """Of its layers in the tarball, in bytes."""
    docker: bool
    """Whether Docker loads it: it is in manifest.json."""


class TarballImage(Strict):
    """What a tarball has under one name."""

    digest: ImageDigest | None
    """Of what the name means in the tarball's own layout. None if it has no such layout: containerd then makes one."""
    variants: Annotated[list[Variant], pydantic.Field(min_length=1, max_length=100)]

    def choose(self, request: ImageRequest) -> Variant | None:
        """The variant that this machine imports. None if it has none for it."""
        return best_platform(request.builds, self.variants)


WholeImageName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9.-]+(:[0-9]+)?/[!-~]+$", max_length=600)]
TarballImages = Annotated[dict[WholeImageName, TarballImage], pydantic.Field(max_length=100)]
_IMAGES: Final = pydantic.TypeAdapter(TarballImages)


def read_image_tarball(file: Path, form: ArchiveFormat, artifact: str) -> dict[str, TarballImage]:
    """The images for Windows by their whole names. `artifact` is for messages."""
    try:
        tarball = _read(file, form, artifact)
        found = _by_layout(tarball) if "oci-layout" in tarball.documents else {}
        # A lock accepts no other names, nor more of them.
        return _IMAGES.validate_python(_with_docker(tarball, found))
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False)[0]
        said = fault["msg"]
        if fault["type"] == "string_pattern_mismatch":
            said = f"{str(fault['input'])[:80]!a} is not a valid name or value"
        raise VerificationError(
            f"{artifact} has an image that is not valid: {said}",
            hint="save only the images that the config needs, each with a valid name",
        ) from error
    except UNREADABLE as error:
        raise VerificationError(f"{artifact} cannot be read as a tarball: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise VerificationError(f"{artifact} has an image that is not valid: {type(error).__name__} {error}") from error


@dataclasses.dataclass
class _Tarball:
    documents: dict[str, bytes]
    """The bytes of each JSON document by its path."""
    sizes: dict[str, int]
    """Of all members."""

    def read(self, path: str) -> Any:  # noqa: ANN401 - any JSON
        return json.loads(self.documents[path])

    def blob(self, digest: str) -> dict[str, Any]:
        """A document of the layout, which has its digest for a name."""
        data = self.documents[_BLOBS + digest.removeprefix("sha256:")]
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise ValueError(f"the bytes of {digest} have another digest")
        return dict(json.loads(data))


def _read(file: Path, form: ArchiveFormat, artifact: str) -> _Tarball:
    found = _Tarball({}, {})
    left = _ALL_DOCUMENTS
    with file.open("rb") as opened:
        for count, member in enumerate(tar_members(opened, form)):
            path = member.name.removeprefix("./")
            found.sizes[path] = member.size
            data = member.read(_LARGEST_DOCUMENT) if member.size <= _LARGEST_DOCUMENT else b""
            # Every document of an image is an object or a list; small layers are not kept.
            if data[:1] in (b"{", b"["):
                found.documents[path] = data
                left -= len(data)
            if left < 0 or count >= LIMIT_MEMBERS:
                raise VerificationError(f"{artifact} has too many documents for a tarball of container images")
    return found


def _by_layout(tarball: _Tarball) -> dict[str, TarballImage]:
    images = {}
    for row in tarball.read("index.json")["manifests"]:
        name = row.get("annotations", {}).get(_NAME)
        variants = [*_variants(tarball, row["digest"], set())] if name else []
        if variants:
            images[str(ImageName.parse(name))] = TarballImage(digest=row["digest"], variants=variants)
    return images


def _variants(tarball: _Tarball, digest: str, visited: set[str]) -> Iterator[Variant]:
    """The variants of an index or a manifest. An export of one platform has an index with manifests that are not in the
    tarball. Without `visited`, a few indexes that list one another many times would take hours."""
    if digest in visited:
        return
    visited.add(digest)
    document = tarball.blob(digest)
    if "manifests" in document:
        for row in document["manifests"]:
            if _BLOBS + row["digest"].removeprefix("sha256:") in tarball.documents:
                yield from _variants(tarball, row["digest"], visited)
        return
    size = sum(int(layer["size"]) for layer in document["layers"])
    # An attestation has a configuration without layers of an operating system.
    with contextlib.suppress(_OtherSystemError):
        yield _variant(document["config"]["digest"], tarball.blob(document["config"]["digest"]), size)


class _OtherSystemError(Exception):
    """An image that is not for Windows."""


def _variant(digest: str, config: dict[str, Any], size: int, *, docker: bool = False) -> Variant:
    if (config.get("os"), config.get("architecture")) != ("windows", "amd64"):
        raise _OtherSystemError
    layers = chain_id(str(one) for one in config["rootfs"]["diff_ids"])
    return Variant(os_version=config.get("os.version") or "", config=digest, layers=layers, size=size, docker=docker)


def _with_docker(tarball: _Tarball, images: dict[str, TarballImage]) -> dict[str, TarballImage]:
    """The images with what `docker load` finds: it reads manifest.json, whatever else is in the tarball."""
    images = dict(images)
    for row in tarball.read("manifest.json") if "manifest.json" in tarball.documents else ():
        data = tarball.documents[row["Config"]]
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        size = sum(tarball.sizes[path] for path in row["Layers"])
        with contextlib.suppress(_OtherSystemError):
            variant = _variant(digest, dict(json.loads(data)), size, docker=True)
            for name in row["RepoTags"] or ():
                whole = str(ImageName.parse(name))
                known = images.get(whole)
                others = [one for one in known.variants if one.config != digest] if known else []
                images[whole] = TarballImage(digest=known.digest if known else None, variants=[*others, variant])
    return images
