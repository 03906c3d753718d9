"""Stands in for the container images of a mirror that `imagegen artifacts mirror` has filled.

It has the same images as the stand-in of the registries. Its tarballs are as `ctr images export` writes them.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from imagegen.oci.names import (
    INDEX,
    Index,
    IndexedImage,
    IndexedTarball,
    blob_path,
    image_folder,
    image_key,
    tarball_path,
)
from imagegen.rehearsal.network.registries import make_image, pack_tarball

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.rehearsal.network.registries import Blob
    from imagegen.steps.image_name import ImageName

_WHEN = "2026-01-01T00:00:00Z"


def make_image_mirror(url: str, names: Iterable[ImageName]) -> dict[str, bytes]:
    """The files of a mirror with these images for all their versions of Windows, by URL."""
    files: dict[str, bytes] = {}
    images: dict[str, IndexedImage] = {}
    for name in names:
        *blobs, index = make_image(name)
        known = {blob.digest: blob for blob in (*blobs, index)}
        for row in json.loads(index.data)["manifests"]:
            if row["platform"]["os"] == "windows":
                entry, own = _copy(name, index, known, row["digest"], row["platform"].get("os.version", ""))
                images[image_key(entry.name, entry.manifest)] = entry
                files |= own
    files[INDEX] = Index(images=images).model_dump_json().encode()
    return {f"{url.rstrip('/')}/{path}": data for path, data in files.items()}


def _copy(
    name: ImageName, index: Blob, known: dict[str, Blob], manifest: str, os_version: str
) -> tuple[IndexedImage, dict[str, bytes]]:
    """The entry of one manifest of an image, and its files."""
    document = json.loads(known[manifest].data)
    layers = [known[layer["digest"]] for layer in document["layers"]]
    config, top = known[document["config"]["digest"]], known[manifest]
    tarball = pack_tarball(name, top, [*layers, config], config, layers)
    folder, path = image_folder(name, manifest), tarball_path(name, manifest)
    sha256 = hashlib.sha256(tarball).hexdigest()
    entry = IndexedImage(
        name=str(name),
        digest=index.digest,
        manifest=manifest,
        os_version=os_version,
        path=folder,
        size=sum(len(layer.data) for layer in layers),
        tarball=IndexedTarball(path=path, sha256=sha256, size=len(tarball)),
        when=_WHEN,
    )
    blobs = {f"{folder}/{blob_path(blob.digest)}": blob.data for blob in (*layers, config, top, index)}
    return entry, {**blobs, path: tarball}
