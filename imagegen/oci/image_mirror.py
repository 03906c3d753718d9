"""Looks up container images in a mirror that `imagegen artifacts mirror` has filled, for the lock.

Every document is compared with its digest, as those of a registry are. The machine imports a tarball of the mirror.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pydantic

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.fetch.request import ArtifactRequest
from imagegen.oci.image_lookup import best_platform, find_at
from imagegen.oci.mirror_layout import (
    INDEX,
    Index,
    IndexedImage,
    blob_path,
    image_folder,
    image_key,
    tarball_path,
)
from imagegen.oci.registry_client import NotThereError, RegistryClient

if TYPE_CHECKING:
    from imagegen.fetch.lock import LockedArtifact
    from imagegen.oci.image_lookup import Ask, ImageRequest, LockedImage
    from imagegen.oci.image_tarball import TarballImage
    from imagegen.steps.image_name import ImageName

_OK, _NOT_FOUND = 200, 404
_LONGEST_NAME: Final = 60
_DIGITS: Final = 8
_FILL: Final = (
    "where the registries can be reached, and with the config without artifacts.mirror, run `imagegen lock CONFIG` and "
    "`imagegen artifacts mirror CONFIG --to MIRROR`; for images of a registry in your network, write it into "
    "artifacts.pull_from"
)


class ImageMirror:
    """The container images of one mirror."""

    def __init__(self, url: str, ask: Ask) -> None:
        self.url = url.rstrip("/")
        self._ask = ask

    @functools.cached_property
    def _index(self) -> Index:
        url = f"{self.url}/{INDEX}"
        try:
            answer = self._ask(url, {}, "")
        except OSError as error:
            raise RefusedError(f"the mirror {self.url} does not answer: {error}", hint=f"check {url}") from error
        if answer.status == _NOT_FOUND:
            raise ConfigError(f"the mirror {self.url} has no {INDEX}, and therefore no container images", hint=_FILL)
        if answer.status != _OK:
            raise RefusedError(
                f"{url} could not be read: status {answer.status}",
                hint="if the mirror is private, write its host into artifacts.credentials",
            )
        try:
            return Index.model_validate_json(answer.body)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise VerificationError(f"{url} is not valid: {place}: {first['msg']}") from error

    def look_up(self, request: ImageRequest) -> LockedImage:
        """Look up an image: what its name meant when it was last copied for this Windows."""
        entry = self._choose(request)
        self._need_tarball(entry)
        try:
            client = self.open(request, entry.digest, entry.manifest)
            found = find_at(request, client)
            return found.model_copy(update={"index": _read_proof(request, found, client)})
        except NotThereError as error:
            raise RefusedError(f"the mirror's copy of {request.name} is incomplete: {error}", hint=_FILL) from error

    def open(self, request: ImageRequest, digest: str, manifest: str) -> RegistryClient:
        """What answers for one image as its registry would."""
        return _MirrorClient(self.url, request, self._ask, digest, manifest)

    def check(self, name: str, locked: LockedImage) -> None:
        """Check that the mirror has an image of the lock, with a tarball."""
        entry = self._index.images.get(image_key(name, locked.manifest))
        if entry is None:
            raise ConfigError(
                f"the mirror {self.url} does not have {name} with the manifest {locked.manifest} of the lock",
                hint=_FILL,
            )
        self._need_tarball(entry)

    def _choose(self, request: ImageRequest) -> IndexedImage:
        offered = sorted(self._images_of(request.name), key=lambda one: one.when, reverse=True)
        # Of each version of Windows the newest copy: a tag moves.
        newest = {one.os_version: one for one in reversed(offered)}
        usable = [one for one in offered if newest[one.os_version] is one]
        found = best_platform(request.builds, usable) or best_platform(request.isolated_builds, usable)
        if found:
            return found
        builds = " or ".join(map(str, (*request.builds, *request.isolated_builds)))
        has = f": it has {', '.join(sorted(newest))}" if newest else ""
        raise ConfigError(f"the mirror {self.url} has no {request.name} for Windows build {builds}{has}", hint=_FILL)

    def _images_of(self, name: ImageName) -> Iterator[IndexedImage]:
        for key, one in self._index.images.items():
            if one.name == str(name) and key == image_key(one.name, one.manifest):
                yield one

    def _need_tarball(self, entry: IndexedImage) -> None:
        if entry.tarball is None:
            registry = entry.name.partition("/")[0]
            raise ConfigError(
                f"the mirror {self.url} has no tarball of {entry.name}, which is too large for one: {entry.size} bytes",
                hint=f"write {registry} into artifacts.pull_from, and a registry that has the image into "
                f"runtime.containerd.registry_mirrors.{registry}",
            )


def _read_proof(request: ImageRequest, found: LockedImage, client: RegistryClient) -> str | None:
    """The index of an image that is named by its digest."""
    if not request.name.digest or found.digest == found.manifest:
        return None
    try:
        return client.read_bytes("manifests", found.digest).decode()
    except UnicodeDecodeError as error:
        raise VerificationError(f"the index of {request.name} is not UTF-8: {error}") from error


class _MirrorClient(RegistryClient):
    """Reads the documents of one image from its layout in the mirror. Its name means the image of this digest."""

    has_tokens = False

    def __init__(self, url: str, request: ImageRequest, ask: Ask, digest: str, manifest: str) -> None:
        super().__init__(url, f"the mirror {url}", request.name, ask, request.hosts, "")
        self._digest = digest
        self._folder = f"{url}/{image_folder(request.name, manifest)}"

    def _url(self, kind: str, what: str) -> str:
        del kind
        return f"{self._folder}/{blob_path(what)}"

    def get(self, kind: str, what: str) -> bytes:
        if what == self._name.tag:
            return self.read_bytes(kind, self._digest)
        return super().get(kind, what)

    def _fetch_token(self, challenge: str) -> str:
        # A mirror has files, and sends nobody to another host for a token.
        del challenge
        raise self._needs_credentials()

    def _needs_credentials(self) -> ConfigError:
        host = self._base.split("/")[2]
        return ConfigError(
            f"{self._name} cannot be looked up: {self.shown} demands credentials",
            hint=f"write {host} into artifacts.credentials",
        )


def tarball_name(name: ImageName) -> str:
    """The name of the artifact that is the tarball of an image."""
    shown = re.sub(r"[^a-z0-9]+", "-", f"{name.repository.rpartition('/')[2]}-{name.tag}".lower()).strip("-")
    return f"image-{shown[:_LONGEST_NAME].rstrip('-')}-{hashlib.sha256(str(name).encode()).hexdigest()[:_DIGITS]}"


def tarball_requests(
    images: Mapping[str, ImageRequest], locked: Mapping[str, LockedImage]
) -> dict[str, ArtifactRequest]:
    """The tarballs to download from the mirror, by their names: those of the images that are locked."""
    found = {}
    for name, request in images.items():
        if request.mirror and name in locked:
            url = f"{request.mirror.rstrip('/')}/{tarball_path(request.name, locked[name].manifest)}"
            own = tarball_name(request.name)
            found[own] = ArtifactRequest(own, url, None, "image", "artifacts.mirror", published=url)
    return found


def find_difference(name: str, locked: LockedImage, images: Mapping[str, TarballImage] | None) -> str:
    """In what the tarball of an image has another image than the lock says; empty if it has none."""
    found = (images or {}).get(name)
    if found is None or [*(images or {})] != [name]:
        return f"the images {', '.join(sorted(images or {})) or 'none'} in place of {name}"
    has = [(one.config, one.layers) for one in found.variants]
    if (found.digest, has) != (locked.manifest, [(locked.config, locked.layers)]):
        return f"{name} as {found.digest}, but the lock says {locked.manifest}"
    return ""


def reject_other_images(
    images: Iterable[ImageRequest], locked: Mapping[str, LockedImage], artifacts: Mapping[str, LockedArtifact]
) -> None:
    """Refuse a tarball of the mirror that does not have exactly the image of the lock."""
    for request in images:
        name, artifact = str(request.name), artifacts.get(tarball_name(request.name))
        if request.mirror and artifact and (other := find_difference(name, locked[name], artifact.images)):
            raise VerificationError(
                f"{artifact.url} has {other}",
                hint="the mirror serves other bytes than `imagegen artifacts mirror` wrote: find out why; to write the "
                "file again, remove it from the mirror and run `imagegen artifacts mirror` again",
            )
