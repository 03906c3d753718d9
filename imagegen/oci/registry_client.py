"""Asks one place for the documents of a container image: a registry, or a mirror of it.

https://github.com/opencontainers/distribution-spec and https://distribution.github.io/distribution/spec/auth/token.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError, VerificationError
from imagegen.fetch.credentials import Address

if TYPE_CHECKING:
    from imagegen.base.hosts import HostPolicy
    from imagegen.oci.image_lookup import Answer, Ask, ImageRequest
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
_OK, _UNAUTHORISED, _FORBIDDEN = 200, 401, 403


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
