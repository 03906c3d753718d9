"""Writes a tarball of a container image: a layout as `ctr images import` reads it, with the list that Docker reads.

The same image has the same bytes. https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
"""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from imagegen.oci.mirror_layout import blob_path

if TYPE_CHECKING:
    from imagegen.oci.image_manifest import Blob, ImageManifest
    from imagegen.steps.image_name import ImageName

LAYOUT: Final = b'{"imageLayoutVersion":"1.0.0"}\n'
# containerd names an imported image by the first annotation, and other programs by the second.
_NAME: Final = "io.containerd.image.name"
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
    return _index(image, annotations={_NAME: str(name), **({_TAG: name.tag} if name.tag else {})})


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
