"""containerd's store on the disk of the model machine: documents and layers by digest, unpacked layers, and the names
of images in namespaces. Everything is below the folder `root` of its configuration, in containerd's own folders.

https://github.com/containerd/containerd/blob/main/docs/content-flow.md
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from imagegen.rehearsal.machine.programs import read_containerd_config
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.windows import Machine

NAMESPACE: Final = "k8s.io"
PINNED: Final = ("io.cri-containerd.pinned", "pinned")
SERVICE: Final = "containerd"
_DEFAULT_ROOT: Final = r"C:\ProgramData\containerd\root"
_EMPTY: Final[dict[str, Any]] = {"images": {}, "snapshots": {}}


class ContainerStore:
    """The store of one machine. The database is a JSON file here."""

    def __init__(self, machine: Machine) -> None:
        self._files = machine.files
        self.config = read_containerd_config(machine.files, machine.services.command(SERVICE))
        root = str(self.config.get("root") or _DEFAULT_ROOT)
        self._blobs = rf"{root}\io.containerd.content.v1.content\blobs\sha256"
        self._snapshots = rf"{root}\io.containerd.snapshotter.v1.windows\snapshots"
        self._database = rf"{root}\io.containerd.metadata.v1.bolt\meta.db"

    # ---- documents and layers

    def path_of(self, digest: str) -> str:
        return rf"{self._blobs}\{digest.removeprefix('sha256:')}"

    def has(self, digest: str) -> bool:
        return self._files.is_file(self.path_of(digest))

    def keep(self, digest: str, data: bytes) -> None:
        self._files.make_folder(self._blobs)
        self._files.write(self.path_of(digest), data)

    def discard(self, digest: str) -> None:
        """Delete a layer or a document, if it is there."""
        if self.has(digest):
            self._files.remove(self.path_of(digest))

    def read(self, digest: str) -> dict[str, Any]:
        """A document."""
        document: dict[str, Any] = json.loads(self._files.read(self.path_of(digest)))
        return document

    # ---- the database

    def _load(self) -> dict[str, dict[str, Any]]:
        is_there = self._files.is_file(self._database)
        loaded: dict[str, dict[str, Any]] = json.loads(self._files.read(self._database)) if is_there else {}
        return loaded

    def _save(self, loaded: Mapping[str, object]) -> None:
        self._files.make_folder(self._database.rpartition("\\")[0])
        self._files.write(self._database, json.dumps(loaded, sort_keys=True).encode())

    def images(self, namespace: str = NAMESPACE) -> dict[str, dict[str, Any]]:
        """The images of a namespace: `target`, the digest, and `labels`, by name."""
        found: dict[str, dict[str, Any]] = self._load().get(namespace, _EMPTY)["images"]
        return found

    def name_image(self, name: str, target: str, labels: Mapping[str, str], namespace: str = NAMESPACE) -> None:
        loaded = self._load()
        space = loaded.setdefault(namespace, {"images": {}, "snapshots": {}})
        space["images"][name] = {"target": target, "labels": dict(labels)}
        self._save(loaded)

    def forget_image(self, name: str, namespace: str = NAMESPACE) -> None:
        loaded = self._load()
        del loaded[namespace]["images"][name]
        self._save(loaded)

    def has_snapshot(self, chain: str, namespace: str = NAMESPACE) -> bool:
        """Whether these layers are unpacked."""
        number = self._load().get(namespace, _EMPTY)["snapshots"].get(chain)
        return number is not None and self._files.is_folder(rf"{self._snapshots}\{number}")

    def snapshot_folder(self, chain: str, namespace: str = NAMESPACE) -> str:
        return rf"{self._snapshots}\{self._load()[namespace]['snapshots'][chain]}"

    def unpack(self, chain: str, data: bytes, namespace: str = NAMESPACE) -> None:
        """Unpack a layer onto those below it."""
        loaded = self._load()
        snapshots = loaded.setdefault(namespace, {"images": {}, "snapshots": {}})["snapshots"]
        number = snapshots.setdefault(chain, len(snapshots) + 1)
        self._files.make_folder(rf"{self._snapshots}\{number}\Files")
        self._files.write(rf"{self._snapshots}\{number}\Files\content", data)
        self._save(loaded)


# ---- containerd's settings for Kubernetes, in both of its schemas


def image_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The section about images."""
    plugins = config.get("plugins", {})
    found: dict[str, Any] = plugins.get("io.containerd.cri.v1.images") or plugins.get("io.containerd.grpc.v1.cri") or {}
    return found


def sandbox_image(config: Mapping[str, Any]) -> str:
    """The image of every pod's sandbox. Empty if the configuration has none, and containerd takes its own."""
    section = image_settings(config)
    return str(section.get("pinned_images", {}).get("sandbox") or section.get("sandbox_image") or "")


def discards_layers(config: Mapping[str, Any]) -> bool:
    section = image_settings(config)
    return bool(section.get("discard_unpacked_layers", section.get("containerd", {}).get("discard_unpacked_layers")))


def mirrors_of(machine: Machine, config: Mapping[str, Any], registry: str) -> list[str]:
    """The mirrors in the folder of a registry, in their order."""
    folder = image_settings(config).get("registry", {}).get("config_path")
    if not folder:
        return []
    name = re.sub(r":([0-9]+)$", r"_\1_", registry)
    path = rf"{folder}\{name}\hosts.toml"
    if not machine.files.is_file(path):
        return []
    text = machine.files.read(path).decode()
    return [json.loads(f'"{url}"') for url in re.findall(r'(?m)^\[host\."((?:[^"\\]|\\.)+)"\]', text)]


def open_store(machine: Machine) -> ContainerStore:
    """The store, through the running service."""
    if not machine.wait_until(lambda: machine.services.is_running(SERVICE), 60):
        raise RefusedByWindows("containerd does not answer: its service is not running")
    return ContainerStore(machine)
