"""Reads and writes container images: the manifest of one, and tarballs for `ctr images import` and `docker load`.

Untrusted input: documents are compared with their digests, and layers with the lock. The same image is written with the
same bytes. https://github.com/opencontainers/image-spec/blob/main/image-layout.md, manifest.md, and manifest.json of
`docker save`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import pydantic

from imagegen.base.errors import VerificationError
from imagegen.fetch.download import LIMIT_BYTES
from imagegen.inspect.archive import LIMIT_MEMBERS, UNREADABLE, tar_members
from imagegen.oci.names import OsVersion, Size, best_platform, blob_path, chain_id
from imagegen.steps.image_name import ImageName
from imagegen.steps.resource import ImageDigest, Strict

if TYPE_CHECKING:
    from imagegen.inspect.archive import ArchiveFormat
    from imagegen.oci.names import ImageRequest, LockedImage

# containerd names an imported image by this annotation of index.json (core/images/annotations.go).
_NAME_KEY: Final = "io.containerd.image.name"
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
        name = row.get("annotations", {}).get(_NAME_KEY)
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


MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
# As containerd: https://github.com/containerd/containerd/blob/main/core/images/mediatypes.go.
_FOREIGN: Final = ("foreign", "nondistributable")
_MOST_LAYERS: Final = 500


class Blob(pydantic.BaseModel):
    """What a manifest says of a configuration or a layer. Other keys are ignored."""

    media_type: Annotated[str, pydantic.Field(alias="mediaType", max_length=200)]
    digest: ImageDigest
    size: Annotated[int, pydantic.Field(ge=0, le=LIMIT_BYTES)]
    urls: Annotated[list[Annotated[str, pydantic.Field(max_length=2000)]], pydantic.Field(max_length=10)] = []

    @property
    def foreign_urls(self) -> list[str]:
        """Where a layer is that its registry need not have: old images of Windows have such layers."""
        return self.urls if any(word in self.media_type for word in _FOREIGN) else []


class _Manifest(pydantic.BaseModel):
    media_type: Annotated[str, pydantic.Field(alias="mediaType", max_length=200)] = MANIFEST_TYPE
    config: Blob
    layers: Annotated[list[Blob], pydantic.Field(max_length=_MOST_LAYERS)]


@dataclasses.dataclass(frozen=True)
class ImageManifest:
    """A manifest and its configuration, which are those of the lock."""

    data: bytes
    config_data: bytes
    media_type: str
    config: Blob
    layers: tuple[Blob, ...]
    platform: dict[str, str]

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    @property
    def blobs(self) -> dict[str, int]:
        """The sizes of manifest, configuration and layers by their digests."""
        return {
            self.digest: len(self.data),
            self.config.digest: self.config.size,
            **{layer.digest: layer.size for layer in self.layers},
        }

    def descriptor(self, **more: object) -> dict[str, object]:
        """How an index lists the image."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data), **more}


def config_digest(manifest: bytes, name: str) -> str:
    """The digest of the configuration in a manifest."""
    return _parse(manifest, name).config.digest


def read_manifest(name: str, locked: LockedImage, manifest: bytes, config: bytes) -> ImageManifest:
    """Read the documents of an image. Both have the digests of the lock."""
    read = _parse(manifest, name)
    try:
        document: Any = json.loads(config)
        platform = {key: str(document[key]) for key in ("os", "architecture", "os.version") if document.get(key)}
        layers = chain_id(str(diff) for diff in document["rootfs"]["diff_ids"])
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise VerificationError(f"the configuration of {name} is not valid: {error}") from error
    size = sum(layer.size for layer in read.layers)
    found = (read.config.digest, len(config), layers, size)
    if found != (locked.config, read.config.size, locked.layers, locked.size):
        raise VerificationError(
            f"the manifest of {name} has other layers than the lock says", hint="look it up again with `imagegen lock`"
        )
    return ImageManifest(manifest, config, read.media_type, read.config, tuple(read.layers), platform)


def _parse(manifest: bytes, name: str) -> _Manifest:
    try:
        return _Manifest.model_validate_json(manifest)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise VerificationError(f"the manifest of {name} is not valid: {place}: {first['msg']}") from error


LAYOUT: Final = b'{"imageLayoutVersion":"1.0.0"}\n'
# Other programs than containerd name an imported image by this annotation.
_TAG: Final = "org.opencontainers.image.ref.name"


class OpenLayer(Protocol):
    """Gives the file of a layer."""

    def __call__(self, layer: Blob) -> AbstractContextManager[Path]:
        """The file, which stays there while the block runs."""


def layout_documents(image: ImageManifest) -> dict[str, bytes]:
    """The documents of a layout, by their paths: everything but the layers."""
    return {
        "oci-layout": LAYOUT,
        "index.json": _index(image, platform=image.platform),
        blob_path(image.digest): image.data,
        blob_path(image.config.digest): image.config_data,
    }


def _index(image: ImageManifest, **more: object) -> bytes:
    return _json({"schemaVersion": 2, "manifests": [image.descriptor(**more)]})


def _tarball_index(image: ImageManifest, name: ImageName) -> bytes:
    # Without a platform: `ctr images import` passes over what is not for the host's own build, also what the host can
    # run with Hyper-V isolation: https://github.com/containerd/containerd/blob/main/client/import.go.
    return _index(image, annotations={_NAME_KEY: str(name), **({_TAG: name.tag} if name.tag else {})})


def write_tarball(file: Path, image: ImageManifest, name: ImageName, open_layer: OpenLayer) -> None:
    """Write the tarball of an image, with its name."""
    documents = layout_documents(image) | {"index.json": _tarball_index(image, name)}
    # Docker imports no image under a name with a digest.
    if name.tag:
        layers = [blob_path(layer.digest) for layer in image.layers]
        listed = {"Config": blob_path(image.config.digest), "RepoTags": [str(name)], "Layers": layers}
        documents |= {"manifest.json": _json([listed])}
    with tarfile.open(file, "x", format=tarfile.GNU_FORMAT) as archive:
        for path, data in documents.items():
            archive.addfile(_entry(path, len(data)), io.BytesIO(data))
        for layer in {one.digest: one for one in image.layers}.values():
            with open_layer(layer) as source, source.open("rb") as opened:
                archive.addfile(_entry(blob_path(layer.digest), layer.size), opened)


def _entry(path: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = size, 0o644
    return entry


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
