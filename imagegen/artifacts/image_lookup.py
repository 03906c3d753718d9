"""Looks up container images in their registries, for the lock: with the tokens that a registry gives to everybody, or
with the credentials of the environment.

https://github.com/opencontainers/distribution-spec and https://distribution.github.io/distribution/spec/auth/token.
Every document is compared with its digest. As containerd does, the mirrors of a registry are asked before it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import pydantic

from imagegen.errors import ConfigError, RefusedError, VerificationError
from imagegen.hosts import ANY_HOST, HostPolicy
from imagegen.resources.model import ImageDigest, Strict

if TYPE_CHECKING:
    from imagegen.resources.image_name import ImageName

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
_OK, _UNAUTHORISED, _FORBIDDEN = 200, 401, 403
# 10.0 and then the build: the first three numbers of os.version.
_BUILD: Final = 2


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

    def answers(self, request: ImageRequest) -> bool:
        """Whether this entry was looked up for this machine, and has the digest of the name."""
        runs = not self.os_version or build_of(self.os_version) in (*request.builds, *request.isolated_builds)
        return runs and self.windows_build == request.builds[0] and request.name.digest in ("", self.digest)

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
    places = [(mirror.rstrip("/"), mirror) for mirror in request.mirrors]
    places += [(f"https://{request.name.host}", request.name.registry)] if request.asks_registry else []
    for base, shown in places:
        try:
            own = credentials if shown == request.name.registry else ""
            return _Registry(base, shown, request.name, ask, request.hosts, own).look_up(request)
        except _NotThereError as error:
            errors.append(str(error))
    raise RefusedError(
        f"{request.name} could not be looked up: {errors[-1]}",
        details=errors[:-1],
        hint="check the name of the image, and that this machine reaches the registry or one of its mirrors",
    )


class _NotThereError(Exception):
    """This place does not have the image, or does not answer. The next one may."""


class _Registry:
    """One place that may have the image: a mirror, or the registry itself."""

    def __init__(self, base: str, shown: str, name: ImageName, ask: Ask, hosts: HostPolicy, credentials: str) -> None:
        self._base, self._shown, self._name, self._ask, self._hosts = base, shown, name, ask, hosts
        self._basic = f"Basic {credentials}" if credentials else ""
        # As containerd tells a mirror whose images it wants.
        is_mirror = base != f"https://{name.host}"
        self._query = f"?{urllib.parse.urlencode({'ns': name.registry})}" if is_mirror else ""
        self._authorization = ""

    def look_up(self, request: ImageRequest) -> LockedImage:
        try:
            return self._look_up(request)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise VerificationError(f"{self._shown} has an image {request.name} that is not valid: {error}") from error

    def _look_up(self, request: ImageRequest) -> LockedImage:
        top = self._get("manifests", request.name.digest or request.name.tag)
        digest = f"sha256:{hashlib.sha256(top).hexdigest()}"
        if request.name.digest not in ("", digest):
            raise VerificationError(f"{self._shown} answered {digest} for {request.name}")
        document = self._parse(top, digest)
        if "manifests" not in document:
            return self._of_manifest(request, digest, digest, document, "")
        if not isinstance(document["manifests"], list):
            raise ValueError("its index has no list of manifests")
        entry = _choose(request, [_platform(row) for row in document["manifests"] if isinstance(row, dict)])
        manifest = self._read("manifests", entry.digest)
        return self._of_manifest(request, digest, entry.digest, manifest, entry.os_version)

    def _of_manifest(
        self, request: ImageRequest, digest: str, manifest_digest: str, manifest: dict[str, Any], os_version: str
    ) -> LockedImage:
        config_digest = str(manifest["config"]["digest"])
        config = self._read("blobs", config_digest)
        size = sum(int(layer["size"]) for layer in manifest["layers"])
        diffs = [str(one) for one in config["rootfs"]["diff_ids"]]
        found = _Platform(manifest_digest, config["os"], config["architecture"], config.get("os.version") or "")
        if not os_version:
            # An index need not repeat the version, and a manifest without an index has it only there.
            os_version = _choose(request, [found]).os_version
        return LockedImage(
            digest=digest,
            manifest=manifest_digest,
            os_version=os_version,
            windows_build=request.builds[0],
            config=config_digest,
            layers=chain_id(diffs),
            size=size,
        )

    def _read(self, kind: str, digest: str) -> dict[str, Any]:
        """A document by its digest."""
        if not _DIGEST.fullmatch(digest):
            raise VerificationError(f"{self._name} names {digest[:80]!a}, which is not a sha256 digest")
        data = self._get(kind, digest)
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if found != digest:
            raise VerificationError(f"{self._shown} answered {found} for {digest} of {self._name}")
        return self._parse(data, digest)

    def _parse(self, data: bytes, digest: str) -> dict[str, Any]:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise _NotThereError(f"{self._shown} answered {digest}, which is not a JSON document of an image")
        return document

    def _get(self, kind: str, what: str) -> bytes:
        url = f"{self._base}/v2/{self._name.repository}/{kind}/{what}{self._query}"
        answer = self._send(url)
        if answer.status == _UNAUTHORISED:
            self._authorization = self._fetch_token(answer.headers.get("www-authenticate", ""))
            answer = self._send(url)
        if answer.status in (_UNAUTHORISED, _FORBIDDEN):
            raise self._needs_credentials()
        if answer.status != _OK:
            raise _NotThereError(f"{self._shown} answered with status {answer.status}")
        return answer.body

    def _send(self, url: str) -> Answer:
        try:
            return self._ask(url, {"Accept": _ACCEPT}, self._authorization)
        except OSError as error:
            raise _NotThereError(f"{self._shown} does not answer: {error}") from error

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
            raise _NotThereError(f"{self._shown} gives no token: its address is not valid: {error}") from error
        if not self._hosts.is_allowed(host):
            is_denied = self._hosts.is_denied(host)
            advice = "an allowed mirror that needs no token to runtime.containerd.registry_mirrors"
            raise ConfigError(
                f"{self._name} cannot be looked up: {self._shown} answers only with a token from {host}, which is "
                f"{'a denied' if is_denied else 'not an allowed'} host",
                hint=f"add {advice}" if is_denied else f"add {host} to artifacts.allowed_hosts, or {advice}",
            )
        wanted = {"scope": f"repository:{self._name.repository}:pull"}
        wanted |= {key: given[key] for key in ("service", "scope") if key in given}
        try:
            answer = self._ask(f"{realm}?{urllib.parse.urlencode(wanted)}", {}, self._basic)
            document = json.loads(answer.body) if answer.status == _OK else {}
        except (OSError, ValueError, RecursionError) as error:
            raise _NotThereError(f"{self._shown} gives no token: {error}") from error
        token = document.get("token") or document.get("access_token") if isinstance(document, dict) else None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise self._needs_credentials()
        return f"Bearer {token}"

    def _needs_credentials(self) -> ConfigError:
        if self._basic:
            return ConfigError(
                f"{self._name} cannot be pulled: {self._shown} refuses the credentials, or has no such image",
                hint="check the variables that registry_credentials names, and whether their user may pull "
                f"{self._name.registry}/{self._name.repository}",
            )
        return ConfigError(
            f"{self._name} cannot be pulled: {self._shown} demands credentials, or has no such image",
            hint=f"write {self._name.registry} into registry_credentials, save the image as a tarball and list it in "
            "image_tarballs, or set runtime.containerd.registry_mirrors to a mirror that the builder may read without "
            "credentials",
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
