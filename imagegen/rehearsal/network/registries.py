"""Stands in for container registries and their mirrors: it has an image under every name, made for a rehearsal.

Which Windows builds an image has is recorded for pause and for Microsoft's base images (catalogue: images, windows).
Any other image is taken to have one for each release of Windows Server, which nobody checked. registry.k8s.io redirects
to another host, and Docker Hub and ghcr.io answer only to requests with a token, which everybody gets.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import io
import json
import re
import tarfile
import urllib.parse
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import numbers, table
from imagegen.fetch.http import Answer
from imagegen.rehearsal.network.messages import Request, Response, parse_target
from imagegen.steps.image_name import DOCKER_HUB, ImageName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.rehearsal.network.messages import Host

_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"
# https://github.com/kubernetes/registry.k8s.io/blob/main/cmd/archeio/docs/request-handling.md.
_KUBERNETES: Final = "registry.k8s.io"
_BEHIND_KUBERNETES: Final = ("us-west1-docker.pkg.dev", "/v2/k8s-artifacts-prod/images/")
# The address that gives tokens, and the service's name there.
_TOKENS: Final = {
    "registry-1.docker.io": ("https://auth.docker.io/token", "registry.docker.io"),
    "ghcr.io": ("https://ghcr.io/token", "ghcr.io"),
}
_PATH: Final = re.compile(r"(?P<prefix>.*)/v2/(?P<repository>.+)/(?P<kind>manifests|blobs)/(?P<what>[^/]+)")
_HOST_PROCESS: Final = "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image"
_MOST_REDIRECTS: Final = 5


@dataclasses.dataclass(frozen=True)
class Blob:
    """A document or a layer."""

    media_type: str
    data: bytes

    @functools.cached_property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def descriptor(self, **more: object) -> dict[str, object]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data), **more}


class Registries:
    """The registries of these images, and mirrors. `beside` answers what is not for a registry at the same host.

    `credentials` are those that a registry demands for a token, by its name, in the form of HTTP's Basic scheme."""

    def __init__(
        self,
        names: Iterable[str] = (),
        mirrors: Iterable[str] = (),
        beside: Host | None = None,
        credentials: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        by_host = {ImageName(registry, "", "", "").host: auth for registry, auth in credentials.items()}
        own = {host: (f"https://{host}/oauth2/token", host) for host in by_host}
        self._token_places = {**own, **_TOKENS}
        self._demanded = {self._token_places[host][0]: auth for host, auth in by_host.items()}
        self._names = [ImageName.parse(name) for name in names]
        self._mirrors = {urllib.parse.urlsplit(url).hostname or "" for url in mirrors}
        self._beside = beside
        self._blobs: dict[str, Blob] = {}
        self._tags: dict[str, str] = {}
        for name in self._names:
            self._tags[str(name)] = self._keep(make_image(name))

    def _keep(self, blobs: list[Blob]) -> str:
        """Keep the documents of an image. Returns the digest of the last one, its index."""
        for blob in blobs:
            self._blobs[blob.digest] = blob
        return blobs[-1].digest

    @property
    def hosts(self) -> frozenset[str]:
        """The names of the hosts."""
        own = {name.host.partition(":")[0] for name in self._names}
        places = self._token_places
        tokens = {urllib.parse.urlsplit(places[host][0]).hostname or "" for host in own & places.keys()}
        return frozenset(own | tokens | self._mirrors | ({_BEHIND_KUBERNETES[0]} if _KUBERNETES in own else set()))

    def __call__(self, request: Request) -> Response:
        place = f"https://{request.host}{request.path}"
        if any(place == realm for realm, _ in self._token_places.values()):
            return self._give_token(request, self._demanded.get(place, ""))
        match = _PATH.fullmatch(request.path)
        if match is None or request.method not in ("GET", "HEAD"):
            if self._beside is not None:
                return self._beside(request)
            return Response(404, fault=f"unexpected request {request.method} to the registry {request.host}")
        return self._serve(request, match)

    def _give_token(self, request: Request, demanded: str) -> Response:
        given = request.headers.get("authorization", "")
        if given and not demanded:
            return Response(400, fault=f"{request.host} received credentials that it did not ask for")
        if demanded and given != f"Basic {demanded}":
            return Response.of_json(401, {"errors": [{"code": "UNAUTHORIZED"}]})
        return Response.of_json(200, {"token": _token(request.host, request.query.get("scope", ""))})

    def _serve(self, request: Request, match: re.Match[str]) -> Response:
        host, repository, query = request.host, match["repository"], request.query.get("ns", "")
        if host == _KUBERNETES:
            there, path = _BEHIND_KUBERNETES
            place = f"https://{there}{path}{repository}/{match['kind']}/{match['what']}"
            return Response(307, headers=(("Location", place),))
        if host in self._token_places:
            realm, service = self._token_places[host]
            scope = f"repository:{repository}:pull"
            if request.headers.get("authorization") != f"Bearer {_token(realm, scope)}":
                challenge = f'Bearer realm="{realm}",service="{service}",scope="{scope}"'
                return Response(401, headers=(("WWW-Authenticate", challenge),))
        elif "authorization" in request.headers:
            return Response(400, fault=f"{host} received credentials that it did not ask for")
        registry = query or (_KUBERNETES if host == _BEHIND_KUBERNETES[0] else _registry_of(host))
        repository = repository.removeprefix("k8s-artifacts-prod/images/") if registry == _KUBERNETES else repository
        what = match["what"]
        digest = what if what.startswith("sha256:") else self._tags.get(f"{registry}/{repository}:{what}", "")
        blob = self._blobs.get(digest)
        if blob is None:
            return Response.of_json(404, {"errors": [{"code": "MANIFEST_UNKNOWN"}]})
        headers = (("Content-Type", blob.media_type), ("Docker-Content-Digest", blob.digest))
        return Response(200, blob.data, headers, note=f"{match['kind']} of {registry}/{repository}")

    def ask(self, url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        """Request a URL without a network, as a client does: with redirects, and with credentials for the host only."""
        current, sent = url, authorization
        for _ in range(_MOST_REDIRECTS):
            parts = urllib.parse.urlsplit(current)
            host, target = parts.hostname or "", current.removeprefix(f"https://{parts.netloc}")
            if host not in self.hosts:
                raise ConnectionError(f"there is no host {host}")
            path, query = parse_target(target)
            given = {key.lower(): text for key, text in headers.items()} | ({"authorization": sent} if sent else {})
            answer = self(Request("GET", host, path, query, given, b"", target))
            if answer.fault:
                raise AssertionError(answer.fault)
            if not answer.header("location"):
                return Answer(answer.status, {key.lower(): text for key, text in answer.headers}, answer.body)
            current, sent = answer.header("location"), ""
        raise ConnectionError("too many redirects")


def _registry_of(host: str) -> str:
    return DOCKER_HUB if host == "registry-1.docker.io" else host


def _token(place: str, scope: str) -> str:
    host = urllib.parse.urlsplit(place).hostname or place
    return hashlib.sha256(f"{host} {scope}".encode()).hexdigest()


def make_tarball(name: ImageName) -> bytes:
    """A tarball of an image that runs on every Windows build, as `ctr images export` writes it: with a layout, and with
    the list that Docker reads."""
    *blobs, index = make_image(name, [("windows", "")])
    first, second, config, _ = blobs
    return pack_tarball(name, index, blobs, config, [first, second])


def pack_tarball(name: ImageName, top: Blob, others: Iterable[Blob], config: Blob, layers: Iterable[Blob]) -> bytes:
    """A tarball in which a name means a document, with everything below it."""
    paths = {blob.digest: f"blobs/sha256/{blob.digest.removeprefix('sha256:')}" for blob in (*others, top)}
    named = top.descriptor(annotations={"io.containerd.image.name": str(name)})
    listed = {
        "Config": paths[config.digest],
        "RepoTags": [str(name)],
        "Layers": [paths[one.digest] for one in layers],
    }
    members = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [named]}).encode(),
        "manifest.json": json.dumps([listed]).encode(),
        **{paths[blob.digest]: blob.data for blob in (*others, top)},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def make_image(name: ImageName, platforms: Iterable[tuple[str, str]] | None = None) -> list[Blob]:
    """The layers, configurations, manifests and, last, the index of an image."""
    blobs, rows = [], []
    for os, version in _platforms(name) if platforms is None else platforms:
        own = f"{name.registry}/{name.repository} {name.tag} on {os} {version}"
        layers = [_layer(f"base of {os} {version}"), _layer(own)]
        diffs = [f"sha256:{hashlib.sha256(gzip.decompress(layer.data)).hexdigest()}" for layer in layers]
        platform = {"os": os, "architecture": "amd64", **({"os.version": version} if version else {})}
        config = Blob(_CONFIG, json.dumps({**platform, "rootfs": {"type": "layers", "diff_ids": diffs}}).encode())
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config.descriptor()}
        made = Blob(_MANIFEST, json.dumps({**manifest, "layers": [layer.descriptor() for layer in layers]}).encode())
        blobs += [*layers, config, made]
        rows.append(made.descriptor(platform=platform))
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": rows}
    return [*blobs, Blob(_INDEX, json.dumps(index).encode())]


def _layer(content: str) -> Blob:
    # Without time, the bytes are the same in every rehearsal.
    return Blob(_LAYER, gzip.compress(f"a stand-in for the {content}, made for a rehearsal\n".encode(), mtime=0))


def _platforms(name: ImageName) -> list[tuple[str, str]]:
    """The operating systems of an image, each with its version."""
    whole = f"{name.registry}/{name.repository}"
    if whole == _HOST_PROCESS:
        return [("windows", "")]
    builds = {release: row["build"] for release, row in table("windows")["releases"].items()}
    # A release without containers of its own runs those of another.
    own = [release for release, row in table("windows")["releases"].items() if release in row["runs_images_of"]]
    if whole in table("images")["repositories"].values():
        release, version = table("images")["tags"].get(name.tag), name.tag
        if release:
            version = f"10.0.{builds[release]}.1000"
        return [("windows", version)]
    calico = table("cni")["calico"]
    if name.repository in calico["names"]:
        return [("windows", f"10.0.{builds[release]}.1000") for release in calico["releases"]]
    if name.repository.rpartition("/")[2] == "pause":
        least = {release: table("windows")["releases"][release]["pause_at_least"] for release in own}
        own = [one for one in own if not least[one] or numbers(name.tag) >= numbers(least[one])]
    return [("linux", ""), *(("windows", f"10.0.{builds[release]}.1000") for release in own)]
