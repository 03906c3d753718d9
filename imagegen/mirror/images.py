"""Copies container images to a mirror: a layout for each digest of a manifest, and a tarball for each name.

Needs no daemon. Of an image for several platforms only the manifest of the lock is copied, with its layers. The bytes
are those of the cache, or downloaded into it, and compared with digest and size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ImagegenError, RefusedError, VerificationError
from imagegen.base.parallel import results_of, run_all
from imagegen.fetch.cache import Cache
from imagegen.fetch.credentials import Address, PrivateHosts, with_credentials
from imagegen.fetch.download import LIMIT_BYTES, Download, StatusError, writing
from imagegen.fetch.http import Web
from imagegen.fetch.request import shown_url
from imagegen.oci.names import Index, IndexedImage, IndexedTarball, blob_path, image_folder, image_key, tarball_path
from imagegen.oci.registry import ImageMirror, NotThereError, RegistryClient, clients_for
from imagegen.oci.tarball import Blob, ImageManifest, config_digest, layout_documents, read_manifest, write_tarball

if TYPE_CHECKING:
    from imagegen.base.console import Console
    from imagegen.fetch.http import Ask
    from imagegen.oci.names import ImageRequest, LockedImage
    from imagegen.providers.storage import FileStore


@dataclasses.dataclass(frozen=True)
class Origin:
    """How the files of one config are downloaded."""

    private: PrivateHosts
    web: Web
    ask: Ask
    """Asks registries."""
    registry_credentials: Callable[[], Mapping[str, str]]
    """By the names of the registries. Fails if a variable is not set."""


@dataclasses.dataclass(frozen=True)
class Place:
    """One place of a file."""

    url: str
    origin: Origin
    key: str = ""
    """The config's key of the URL, for hints."""
    token: Callable[[], Address] | None = None
    """For a registry: its address with a token."""

    @property
    def address(self) -> Callable[[], Address] | None:
        if self.token is None and self.origin.private.is_private(self.url):
            return functools.partial(self.origin.private.address, self.url)
        return self.token


@dataclasses.dataclass(frozen=True)
class Source:
    """Gets files. Several threads may use it; `stop` ends all of them."""

    cache: Cache
    parts: Path
    console: Console
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    @contextlib.contextmanager
    def get(self, place: Place, sha256: str, size: int) -> Iterator[Path]:
        """The file with this digest, which stays there while the block runs."""
        with contextlib.ExitStack() as held:
            file = held.enter_context(self.cache.use(sha256))
            if file is None:
                download = Download(web=place.origin.web, url=place.url, key=place.key, address=place.address)
                _, part = download.save(self.parts, sha256)
                file = held.enter_context(self.cache.add(part, sha256))
            if file.stat().st_size != size:
                raise VerificationError(
                    f"{shown_url(place.url)} has {file.stat().st_size} bytes, but {size} are expected",
                    hint="the digest is right, so the expected size is wrong: look it up again with `imagegen lock`",
                )
            yield file


RESUME_HINT: Final = "finished copies are kept: run it again"
_UNAUTHORISED: Final = 401
_LARGEST_DOCUMENT: Final = 8 * 2**20


@dataclasses.dataclass(frozen=True)
class WantedImage:
    """A container image of a lock, and how it is pulled."""

    request: ImageRequest
    locked: LockedImage
    origin: Origin

    @property
    def name(self) -> str:
        return str(self.request.name)

    @property
    def key(self) -> str:
        return image_key(self.name, self.locked.manifest)

    @property
    def folder(self) -> str:
        return image_folder(self.request.name, self.locked.manifest)

    def find_places(self) -> list[RegistryClient]:
        """Where it can be copied from: another mirror, or the places from which a runtime would pull it."""
        request, origin = self.request, self.origin
        if request.mirror:
            mirror = ImageMirror(request.mirror, with_credentials(origin.ask, origin.private))
            return [mirror.open(request, self.locked.digest, self.locked.manifest)]
        return clients_for(request, origin.ask, origin.registry_credentials().get(request.name.registry, ""))


def _is_too_large(image: ImageManifest) -> bool:
    return sum(image.blobs.values()) > LIMIT_BYTES


class ImageCopier:
    """Copies images to one mirror."""

    def __init__(self, store: FileStore, source: Source, when: str) -> None:
        self._store = store
        self._source = source
        self._when = when

    def find(self, wanted: WantedImage, index: Index) -> IndexedImage | None:
        """The entry of an image of which the mirror has everything; None if something is missing."""
        entry = index.images.get(wanted.key)
        if entry is None or entry.path != wanted.folder:
            return None
        if (image := self._read_stored(wanted)) is None or self._read_document(wanted, wanted.locked.digest) is None:
            return None
        missing = [digest for digest, size in image.blobs.items() if not self._has_blob(wanted, digest, size)]
        tarball = entry.tarball
        is_whole = self._has(tarball.path, tarball.sha256, tarball.size) if tarball else _is_too_large(image)
        return entry if is_whole and not missing else None

    def copy(self, wanted: WantedImage) -> IndexedImage:
        """Copy what is missing of an image."""
        client, image, index = self._pull_documents(wanted)
        opener = _LayerOpener(self._source, wanted, client)
        layers = list({layer.digest: layer for layer in image.layers}.values())

        def copy_layer(layer: Blob) -> None:
            if not self._has_blob(wanted, layer.digest, layer.size):
                with opener(layer) as file:
                    self._store.put(f"{wanted.folder}/{blob_path(layer.digest)}", file, layer.digest.partition(":")[2])

        label = f"copying the layers of {wanted.name}"
        results_of(run_all(copy_layer, layers, label, self._source.console, self._source.stop), "files", RESUME_HINT)
        # The documents come last: a folder with them is complete.
        for path, data in reversed({**layout_documents(image), blob_path(wanted.locked.digest): index}.items()):
            self._put_bytes(f"{wanted.folder}/{path}", data)
        return IndexedImage(
            name=wanted.name,
            digest=wanted.locked.digest,
            manifest=image.digest,
            os_version=wanted.locked.os_version,
            path=wanted.folder,
            size=wanted.locked.size,
            tarball=self._copy_tarball(wanted, image, opener),
            when=self._when,
        )

    def _copy_tarball(self, wanted: WantedImage, image: ImageManifest, opener: _LayerOpener) -> IndexedTarball | None:
        if _is_too_large(image):
            return None
        name, part = wanted.request.name, self._source.parts / secrets.token_hex(16)
        path = tarball_path(name, image.digest)
        try:
            with self._source.console.task(f"writing the tarball of {wanted.name}", None), writing(part):
                write_tarball(part, image, name, opener)
                with part.open("rb") as written:
                    sha256 = hashlib.file_digest(written, "sha256").hexdigest()
            size = part.stat().st_size
            if not self._has(path, sha256, size):
                self._store.put(path, part, sha256)
        finally:
            part.unlink(missing_ok=True)
        return IndexedTarball(path=path, sha256=sha256, size=size)

    def _pull_documents(self, wanted: WantedImage) -> tuple[RegistryClient, ImageManifest, bytes]:
        """The manifest with the configuration, what the name means, and the place that has them."""
        locked = wanted.locked
        errors: list[str] = []
        for client in wanted.find_places():
            try:
                manifest = client.read_bytes("manifests", locked.manifest)
                config = client.read_bytes("blobs", config_digest(manifest, wanted.name))
                index = client.read_bytes("manifests", locked.digest)
                return client, read_manifest(wanted.name, locked, manifest, config), index
            except NotThereError as error:
                errors.append(str(error))
        raise RefusedError(
            f"{wanted.name} could not be pulled: {errors[-1]}",
            details=errors[:-1],
            hint="a registry may have removed this digest: run `imagegen lock` again, or check that this machine "
            "reaches the registry",
        )

    def _read_stored(self, wanted: WantedImage) -> ImageManifest | None:
        manifest = self._read_document(wanted, wanted.locked.manifest)
        config = self._read_document(wanted, wanted.locked.config)
        if manifest is None or config is None:
            return None
        return read_manifest(wanted.name, wanted.locked, manifest, config)

    def _read_document(self, wanted: WantedImage, digest: str) -> bytes | None:
        found = self._store.read(f"{wanted.folder}/{blob_path(digest)}", _LARGEST_DOCUMENT)
        # Other bytes under this name are replaced.
        return found[0] if found and f"sha256:{hashlib.sha256(found[0]).hexdigest()}" == digest else None

    def _has_blob(self, wanted: WantedImage, digest: str, size: int) -> bool:
        return self._has(f"{wanted.folder}/{blob_path(digest)}", digest.partition(":")[2], size)

    def _has(self, path: str, sha256: str, size: int) -> bool:
        found = self._store.find(path)
        return found is not None and (found.sha256, found.size) == (sha256, size)

    def _put_bytes(self, path: str, data: bytes) -> None:
        sha256 = hashlib.sha256(data).hexdigest()
        if self._has(path, sha256, len(data)):
            return
        part = self._source.parts / secrets.token_hex(16)
        with writing(part):
            part.write_bytes(data)
        self._store.put(path, part, sha256)
        part.unlink()


@dataclasses.dataclass(frozen=True)
class _LayerOpener:
    """Gets the layers of one image: those of other hosts from there, and else from the registry."""

    source: Source
    wanted: WantedImage
    client: RegistryClient

    @contextlib.contextmanager
    def __call__(self, layer: Blob) -> Iterator[Path]:
        with contextlib.ExitStack() as held:
            yield self._open(layer, held)

    def _open(self, layer: Blob, held: contextlib.ExitStack) -> Path:
        sha256, origin = layer.digest.partition(":")[2], self.wanted.origin
        for url in layer.foreign_urls:
            try:
                return held.enter_context(self.source.get(Place(url, origin), sha256, layer.size))
            except ImagegenError as error:
                self.source.console.say(f"{error.message}; asking {self.client.shown} for this layer")
        client = self.client
        token = (lambda: client.address(layer.digest)) if client.has_tokens else None
        place = Place(client.address(layer.digest).url, origin, token=token)
        try:
            return held.enter_context(self.source.get(place, sha256, layer.size))
        except StatusError as error:
            if error.status != _UNAUTHORISED:
                raise
        # The token of a long pull has expired.
        try:
            self.client.renew(self.wanted.locked.manifest)
        except NotThereError as error:
            raise RefusedError(
                f"{self.wanted.name} could not be pulled to its end: {error}",
                hint="run the command again: what is in the mirror is not downloaded again",
            ) from error
        return held.enter_context(self.source.get(place, sha256, layer.size))
