"""Writes a tarball of a container image: a layout as `ctr images import` reads it, with the list that Docker reads.

The same image has the same bytes. https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from imagegen.mirror.image_manifest import Blob, ImageManifest
    from imagegen.resources.image_name import ImageName

LAYOUT: Final = b'{"imageLayoutVersion":"1.0.0"}\n'
# containerd names an imported image by the first annotation, and other programs by the second.
_NAME: Final = "io.containerd.image.name"
_TAG: Final = "org.opencontainers.image.ref.name"


class OpenLayer(Protocol):
    """Gives the file of a layer."""

    def __call__(self, layer: Blob) -> AbstractContextManager[Path]:
        """The file, which stays there while the block runs."""


def blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def layout_documents(image: ImageManifest, annotations: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The documents of a layout, by their paths: everything but the layers."""
    more = {"platform": image.platform, **({"annotations": dict(annotations)} if annotations else {})}
    index = {"schemaVersion": 2, "manifests": [image.descriptor(**more)]}
    return {
        "oci-layout": LAYOUT,
        "index.json": _json(index),
        blob_path(image.digest): image.data,
        blob_path(image.config.digest): image.config_data,
    }


def write_tarball(file: Path, image: ImageManifest, name: ImageName, open_layer: OpenLayer) -> None:
    """Write the tarball of an image with a tag."""
    listed = {
        "Config": blob_path(image.config.digest),
        "RepoTags": [str(name)],
        "Layers": [blob_path(layer.digest) for layer in image.layers],
    }
    documents = layout_documents(image, {_NAME: str(name), _TAG: name.tag})
    with tarfile.open(file, "x", format=tarfile.GNU_FORMAT) as archive:
        for path, data in {**documents, "manifest.json": _json([listed])}.items():
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
