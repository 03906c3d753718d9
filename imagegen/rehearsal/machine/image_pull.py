"""How containerd pulls an image for Kubernetes on the model machine: as `crictl pull` asks for it.

https://github.com/containerd/containerd: core/remotes/docker (hosts, tokens), platforms (which manifest of an index),
and internal/cri/server/images/image_pull.go (names, labels and layers that are discarded).
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import re
import tarfile
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.container_store import (
    PINNED,
    ContainerStore,
    discards_layers,
    mirrors_of,
    open_store,
    sandbox_image,
)
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.windows import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imagegen.rehearsal.machine.windows import Machine

MANAGED: Final = ("io.cri-containerd.image", "managed")
# Since then, a machine runs the images of the release before its own too.
_STABLE: Final = 20348
_LONG_TERM: Final = (20348, 26100)
_ACCEPT: Final = (
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, */*"
)


def pull(machine: Machine, reference: str, auth: str = "") -> None:
    """Pull an image by its whole name with a digest. `auth` is CRICTL_AUTH."""
    store = open_store(machine)
    named, _, digest = reference.partition("@")
    registry, _, repository = named.partition("/")
    mirrors = mirrors_of(machine, store.config, registry)
    remote = Remote(machine, registry, repository, mirrors, store.keep, auth)
    top = json.loads(remote.fetch("manifests", digest))
    manifest_digest = digest
    if "manifests" in top:
        manifest_digest = choose_manifest(machine, top["manifests"])
        top = json.loads(remote.fetch("manifests", manifest_digest))
    config = json.loads(remote.fetch("blobs", top["config"]["digest"]))
    if (config.get("os"), config.get("architecture")) != ("windows", "amd64"):
        raise RefusedByWindows("no match for platform in manifest: not found")
    _unpack(store, functools.partial(remote.fetch, "blobs"), top["layers"], config["rootfs"]["diff_ids"])
    if discards_layers(store.config):
        for layer in top["layers"]:
            store.discard(layer["digest"])
    for name in (reference, top["config"]["digest"]):
        store.name_image(name, digest, _labels(store, name))


def import_tarball(machine: Machine, tarball: str) -> None:
    """`ctr images import`: of a tarball with a layout, every image that has a name there. It keeps the layers."""
    store = open_store(machine)
    with tarfile.open(fileobj=io.BytesIO(machine.files.read(tarball))) as archive:
        members = {one.name: content.read() for one in archive if (content := archive.extractfile(one))}
    if "oci-layout" not in members:
        # containerd takes an older tarball too, and makes a manifest of its own, which the rehearsal has no model of.
        raise UnknownCommandError("ctr images import: a tarball without oci-layout")

    def fetch(digest: str) -> bytes:
        data = members.get(f"blobs/sha256/{digest.removeprefix('sha256:')}")
        if data is None or f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise RefusedByWindows(f"content digest {digest}: not found")
        store.keep(digest, data)
        return data

    for row in json.loads(members["index.json"])["manifests"]:
        top = json.loads(fetch(row["digest"]))
        if "manifests" in top:
            top = json.loads(fetch(choose_manifest(machine, top["manifests"])))
        config = json.loads(fetch(top["config"]["digest"]))
        _unpack(store, fetch, top["layers"], config["rootfs"]["diff_ids"])
        if name := row.get("annotations", {}).get("io.containerd.image.name"):
            store.name_image(name, row["digest"], _labels(store, name))


def tag(machine: Machine, source: str, name: str) -> None:
    """`ctr images tag --force`. containerd then marks the name as one of Kubernetes."""
    store = open_store(machine)
    if source not in store.images():
        raise RefusedByWindows(f'image "{source}": not found')
    store.name_image(name, store.images()[source]["target"], _labels(store, name))


def pin(machine: Machine, name: str) -> None:
    """`ctr images label`."""
    store = open_store(machine)
    image = store.images()[name]
    store.name_image(name, image["target"], {**image["labels"], PINNED[0]: PINNED[1]})


def can_run(machine: Machine, os_version: str) -> bool:
    """Whether this Windows runs a container of that version: CheckHostAndContainerCompat."""
    if not os_version:
        return True
    host, build = int(machine.build), int(os_version.split(".")[2])
    if host < _STABLE:
        return host == build
    older = [one for one in _LONG_TERM if one <= host]
    return older[max(0, len(older) - 2)] <= build <= host


def _labels(store: ContainerStore, name: str) -> dict[str, str]:
    return dict([MANAGED, PINNED] if name == sandbox_image(store.config) else [MANAGED])


def choose_manifest(machine: Machine, rows: Sequence[dict[str, Any]]) -> str:
    """The manifest for this machine: of those that it can run the one with the greatest version."""
    platforms = {row["digest"]: row.get("platform", {}) for row in rows}
    usable = [
        (found.get("os.version", ""), digest)
        for digest, found in platforms.items()
        if (found.get("os"), found.get("architecture")) == ("windows", "amd64")
        and can_run(machine, found.get("os.version", ""))
    ]
    if not usable:
        raise RefusedByWindows("no match for platform in manifest: not found")
    return str(max(usable)[1])


def _unpack(
    store: ContainerStore, fetch: Callable[[str], bytes], layers: Sequence[dict[str, Any]], diffs: Sequence[str]
) -> None:
    chain = ""
    for layer, diff in zip(layers, diffs, strict=True):
        chain = f"sha256:{hashlib.sha256(f'{chain} {diff}'.encode()).hexdigest()}" if chain else diff
        # Layers that are unpacked already are not downloaded again.
        if not store.has_snapshot(chain):
            data = gzip.decompress(fetch(layer["digest"]))
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != diff:
                raise RefusedByWindows(f"wrong diff id calculated on extraction {diff}")
            store.unpack(chain, data)


class Remote:
    """The registry of an image with its mirrors. `keep` stores what comes from there."""

    def __init__(
        self,
        machine: Machine,
        registry: str,
        repository: str,
        mirrors: Sequence[str] = (),
        keep: Callable[[str, bytes], None] = lambda *_: None,
        auth: str = "",
    ) -> None:
        self._basic = f"Basic {auth}" if auth else ""
        self._machine, self._mirrors, self._keep = machine, mirrors, keep
        self._registry, self._repository = registry, repository
        self._tokens: dict[str, str] = {}

    def fetch(self, kind: str, digest: str) -> bytes:
        failure = "there is no host"
        for base, query in self._hosts():
            url = f"{base}/v2/{self._repository}/{kind}/{digest}{query}"
            try:
                data = self._get(base, url)
            except OSError as error:
                failure = f"{url}: {error}"
                continue
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
                raise RefusedByWindows(f"failed commit on ref {digest}: unexpected commit digest: failed precondition")
            self._keep(digest, data)
            return data
        raise RefusedByWindows(f"failed to resolve reference: failed to do request: {failure}")

    def _hosts(self) -> Iterator[tuple[str, str]]:
        for mirror in self._mirrors:
            yield mirror.rstrip("/"), f"?ns={urllib.parse.quote(self._registry)}"
        host = "registry-1.docker.io" if self._registry == "docker.io" else self._registry
        yield f"https://{host}", ""

    def _get(self, base: str, url: str) -> bytes:
        proxy = self._machine.registry.text(ENVIRONMENT, "HTTPS_PROXY")
        status, headers, body = self._machine.browse(url, {"Accept": _ACCEPT}, self._tokens.get(base, ""), proxy)
        if status == 401 and base not in self._tokens:
            self._tokens[base] = self._authorize(headers.get("www-authenticate", ""), proxy)
            return self._get(base, url)
        if status != 200:
            raise ConnectionError(f"unexpected status {status}")
        return body

    def _authorize(self, challenge: str, proxy: str | None) -> str:
        """The header for a host that demands one: the credentials, or a token, for which they may be needed."""
        given = dict(re.findall(r'([a-z]+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer"):
            return self._basic
        query = urllib.parse.urlencode({key: given[key] for key in ("service", "scope") if key in given})
        status, _, answer = self._machine.browse(f"{given['realm']}?{query}", {}, self._basic, proxy)
        if status != 200:
            raise ConnectionError(f"failed to authorize: failed to fetch a token: unexpected status {status}")
        return f"Bearer {json.loads(answer)['token']}"
