"""Looks up container images in registries, their mirrors, and a mirror that `imagegen artifacts mirror` has filled.

Every document is compared with its digest. As containerd does, the mirrors of a registry are asked before it, with the
tokens that a registry gives to everybody, or with the credentials of the environment. No value of these is written to a
file or shown. https://github.com/opencontainers/distribution-spec and
https://distribution.github.io/distribution/spec/auth/token.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pydantic

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.hosts import HostPolicy
from imagegen.fetch.credentials import Address, basic_credentials, read_values
from imagegen.fetch.request import ArtifactRequest
from imagegen.oci.names import (
    INDEX,
    ImageRequest,
    Index,
    IndexedImage,
    LockedImage,
    best_platform,
    blob_path,
    chain_id,
    image_folder,
    image_key,
    tarball_path,
)
from imagegen.steps.image_name import DOCKER_HUB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.base.hosts import HostPolicy
    from imagegen.fetch.http import Answer, Ask
    from imagegen.fetch.lock import LockedArtifact
    from imagegen.oci.tarball import TarballImage
    from imagegen.steps.image_name import ImageName

_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT: Final = ", ".join((*_INDEXES, *_MANIFESTS))
_PARAMETER: Final = re.compile(r'([a-z]+)="([^"]*)"')
# What a header can carry.
_TOKEN: Final = re.compile(r"[!-~]+")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_OK, _UNAUTHORISED, _FORBIDDEN, _NOT_FOUND = 200, 401, 403, 404


class NotThereError(Exception):
    """This place does not have the image, or does not answer. The next one may."""


def clients_for(request: ImageRequest, ask: Ask, credentials: str = "") -> list[RegistryClient]:
    """The places that may have an image, in the order in which containerd asks them.

    `credentials` are the registry's, in the form of HTTP's Basic scheme. No mirror gets them.
    """
    name = request.name
    found = [RegistryClient(mirror.rstrip("/"), mirror, name, ask, request.hosts, "") for mirror in request.mirrors]
    if request.asks_registry:
        found.append(RegistryClient(f"https://{name.host}", name.registry, name, ask, request.hosts, credentials))
    return found


class RegistryClient:
    """One place that may have the image: a mirror, or the registry itself."""

    has_tokens = True
    """Whether an address is complete only with the token that the last document needed."""

    def __init__(self, base: str, shown: str, name: ImageName, ask: Ask, hosts: HostPolicy, credentials: str) -> None:
        self.shown = shown
        self._base, self._name, self._ask, self._hosts = base, name, ask, hosts
        self._basic = f"Basic {credentials}" if credentials else ""
        # As containerd tells a mirror whose images it wants.
        is_mirror = base != f"https://{name.host}"
        self._query = f"?{urllib.parse.urlencode({'ns': name.registry})}" if is_mirror else ""
        self._authorization = ""

    def _url(self, kind: str, what: str) -> str:
        return f"{self._base}/v2/{self._name.repository}/{kind}/{what}{self._query}"

    def address(self, digest: str) -> Address:
        """The address of a blob, with the token that the last document needed."""
        return Address(self._url("blobs", digest), self._authorization)

    def renew(self, digest: str) -> None:
        """Get a new token, because that of a long pull has expired. `digest` is that of any manifest."""
        self._authorization = ""
        self.get("manifests", digest)

    def read(self, kind: str, digest: str) -> dict[str, Any]:
        """A document by its digest."""
        return self.parse(self.read_bytes(kind, digest), digest)

    def read_bytes(self, kind: str, digest: str) -> bytes:
        """The bytes of a document by its digest."""
        if not _DIGEST.fullmatch(digest):
            raise VerificationError(f"{self._name} names {digest[:80]!a}, which is not a sha256 digest")
        data = self.get(kind, digest)
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if found != digest:
            raise VerificationError(f"{self.shown} answered {found} for {digest} of {self._name}")
        return data

    def parse(self, data: bytes, digest: str) -> dict[str, Any]:
        """A JSON document, whose digest is for messages."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise NotThereError(f"{self.shown} answered {digest}, which is not a JSON document of an image")
        return document

    def get(self, kind: str, what: str) -> bytes:
        """The bytes of a manifest or of a blob, by its tag or its digest."""
        url = self._url(kind, what)
        answer = self._send(url)
        if answer.status == _UNAUTHORISED:
            self._authorization = self._fetch_token(answer.headers.get("www-authenticate", ""))
            answer = self._send(url)
        if answer.status in (_UNAUTHORISED, _FORBIDDEN):
            raise self._needs_credentials()
        if answer.status != _OK:
            raise NotThereError(f"{self.shown} answered with status {answer.status}")
        return answer.body

    def _send(self, url: str) -> Answer:
        try:
            return self._ask(url, {"Accept": _ACCEPT}, self._authorization)
        except OSError as error:
            raise NotThereError(f"{self.shown} does not answer: {error}") from error

    def _fetch_token(self, challenge: str) -> str:
        """The Authorization header with which the registry answers: the credentials, or a token. Without credentials,
        it is a token that everybody gets."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self._basic:
            return self._basic
        given = dict(_PARAMETER.findall(rest))
        realm = given.get("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith("https://"):
            raise self._needs_credentials()
        try:
            host = urllib.parse.urlsplit(realm).netloc
        except ValueError as error:
            raise NotThereError(f"{self.shown} gives no token: its address is not valid: {error}") from error
        if not self._hosts.is_allowed(host):
            is_denied = self._hosts.is_denied(host)
            advice = "an allowed mirror that needs no token to runtime.containerd.registry_mirrors"
            raise ConfigError(
                f"{self._name} cannot be looked up: {self.shown} answers only with a token from {host}, which is "
                f"{'a denied' if is_denied else 'not an allowed'} host",
                hint=f"add {advice}" if is_denied else f"add {host} to artifacts.allowed_hosts, or {advice}",
            )
        wanted = {"scope": f"repository:{self._name.repository}:pull"}
        wanted |= {key: given[key] for key in ("service", "scope") if key in given}
        try:
            answer = self._ask(f"{realm}?{urllib.parse.urlencode(wanted)}", {}, self._basic)
            document = json.loads(answer.body) if answer.status == _OK else {}
        except (OSError, ValueError, RecursionError) as error:
            raise NotThereError(f"{self.shown} gives no token: {error}") from error
        token = document.get("token") or document.get("access_token") if isinstance(document, dict) else None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise self._needs_credentials()
        return f"Bearer {token}"

    def _needs_credentials(self) -> ConfigError:
        if self._basic:
            return ConfigError(
                f"{self._name} cannot be pulled: {self.shown} refuses the credentials, or has no such image",
                hint="check the variables that registry_credentials names, and whether their user may pull "
                f"{self._name.registry}/{self._name.repository}",
            )
        return ConfigError(
            f"{self._name} cannot be pulled: {self.shown} demands credentials, or has no such image",
            hint=f"write {self._name.registry} into registry_credentials, save the image as a tarball and list it in "
            "image_tarballs, or set runtime.containerd.registry_mirrors to a mirror that the builder may read without "
            "credentials",
        )


# Docker's own name for Docker Hub in its configuration (registry/config.go: IndexServer).
_DOCKER_HUB_KEY = "https://index.docker.io/v1/"


def read_credentials(names: Mapping[str, Mapping[str, str]], environ: Mapping[str, str]) -> dict[str, str]:
    """The credentials of each registry in the form of HTTP's Basic scheme. `names` has those of its variables."""
    return {
        registry: basic_credentials(read_values("registry_credentials", registry, variables, environ))
        for registry, variables in names.items()
    }


def builder_variable(credentials: Mapping[str, str], *, for_docker: bool) -> str:
    """What the builder gets: the base64 of a configuration of Docker, so that no program has to quote it."""
    auths = {
        _DOCKER_HUB_KEY if for_docker and registry == DOCKER_HUB else registry: {"auth": auth}
        for registry, auth in sorted(credentials.items())
    }
    return base64.b64encode(json.dumps({"auths": auths}).encode()).decode() if auths else ""


def secret_forms(credentials: Mapping[str, str]) -> tuple[str, ...]:
    """Every text that a program could print of the credentials."""
    passwords = [base64.b64decode(auth).decode().partition(":")[2] for auth in credentials.values()]
    return (*credentials.values(), *passwords)


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
