"""The manifest of a container image, as a registry has it: untrusted input, whose layers are compared with the lock.

https://github.com/opencontainers/image-spec/blob/main/manifest.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic

from imagegen.base.errors import VerificationError
from imagegen.fetch.download import LIMIT_BYTES
from imagegen.oci.image_lookup import chain_id
from imagegen.steps.resource import ImageDigest

if TYPE_CHECKING:
    from imagegen.oci.image_lookup import LockedImage

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
