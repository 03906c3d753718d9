r"""Docker's images on the disk of the model machine: configurations by their digest, layers, and the names of images,
in Docker's own folders and in the form of its own repositories.json.

Docker on Windows keeps images with its graph driver: the id of an image is the digest of its configuration.
https://github.com/moby/moby: daemon/image_store_choice.go, image/fs.go, reference/store.go, and distribution/pull_v2.go
with pull_v2_windows.go.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any, Final

from imagegen.oci.names import build_of, chain_id
from imagegen.rehearsal.machine.docker_engine import docker_fault
from imagegen.rehearsal.machine.image_pull import Remote
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry_credentials import docker_auth
from imagegen.steps.image_name import DOCKER_HUB, ImageName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine

ROOT: Final = r"C:\ProgramData\docker"
_OFFICIAL: Final = "library/"


class DockerStore:
    """The store of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._files = machine, machine.files
        self._images = rf"{ROOT}\image\windowsfilter"
        self._names = rf"{self._images}\repositories.json"

    def ids(self) -> dict[str, str]:
        """The id of each image by its name, as Docker spells names."""
        if not self._files.is_file(self._names):
            return {}
        known = json.loads(self._files.read(self._names))["Repositories"]
        return {name: id_ for names in known.values() for name, id_ in names.items()}

    def name_image(self, name: str, id_: str) -> None:
        self._save({**self.ids(), name: id_})

    def forget_image(self, name: str) -> None:
        self._save({known: id_ for known, id_ in self.ids().items() if known != name})

    def _save(self, ids: Mapping[str, str]) -> None:
        repositories: dict[str, dict[str, str]] = {}
        for name, id_ in ids.items():
            repository = name.partition("@")[0] if "@" in name else name.rpartition(":")[0]
            repositories.setdefault(repository, {})[name] = id_
        self._files.make_folder(self._images)
        self._files.write(self._names, json.dumps({"Repositories": repositories}, sort_keys=True).encode())

    def config_path(self, id_: str) -> str:
        return rf"{self._images}\imagedb\content\sha256\{id_.removeprefix('sha256:')}"

    def config(self, id_: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._files.read(self.config_path(id_)))
        return found

    def layer_folder(self, chain: str) -> str:
        return rf"{ROOT}\windowsfilter\{chain.removeprefix('sha256:')}"

    def has_layers(self, chain: str) -> bool:
        return self._files.is_folder(self.layer_folder(chain))

    def keep(self, config: bytes, layers: Sequence[bytes]) -> str:
        """Keep an image with its unpacked layers. Returns its id."""
        diffs: list[str] = json.loads(config)["rootfs"]["diff_ids"]
        for number, (diff, layer) in enumerate(zip(diffs, layers, strict=True), 1):
            if f"sha256:{hashlib.sha256(layer).hexdigest()}" != diff:
                raise RefusedByWindows(f"filesystem layer verification failed for digest {diff}")
            folder = self.layer_folder(chain_id(diffs[:number]))
            self._files.make_folder(folder)
            self._files.write(rf"{folder}\content", layer)
        id_ = f"sha256:{hashlib.sha256(config).hexdigest()}"
        path = self.config_path(id_)
        self._files.make_folder(path.rpartition("\\")[0])
        self._files.write(path, config)
        return id_


def open_docker(machine: Machine) -> DockerStore:
    """The store, through the running service."""
    if not machine.wait_until(lambda: not docker_fault(machine), 60):
        raise RefusedByWindows(f"docker.exe ended with 1: error during connect: {docker_fault(machine)}")
    return DockerStore(machine)


def spell(name: ImageName) -> str:
    """The name as Docker keeps it: without its own registry."""
    text = str(name)
    if name.registry == DOCKER_HUB:
        text = text.removeprefix(f"{DOCKER_HUB}/").removeprefix(_OFFICIAL)
    return text


def pull(machine: Machine, reference: str) -> None:
    """`docker pull`, by a name with a digest."""
    store, name = open_docker(machine), ImageName.parse(reference)
    remote = Remote(machine, name.registry, name.repository, auth=docker_auth(machine.files, name.registry))
    top = json.loads(remote.fetch("manifests", name.digest))
    if "manifests" in top:
        top = json.loads(remote.fetch("manifests", _prefer(machine, top["manifests"])))
    config = remote.fetch("blobs", top["config"]["digest"])
    _check_host(machine, json.loads(config))
    layers = [gzip.decompress(remote.fetch("blobs", layer["digest"])) for layer in top["layers"]]
    store.name_image(spell(name), store.keep(config, layers))


def tag(machine: Machine, source: str, name: str) -> None:
    """`docker tag`."""
    store, wanted = open_docker(machine), ImageName.parse(name)
    if wanted.digest:
        raise RefusedByWindows("refusing to create a tag with a digest reference")
    found = store.ids().get(spell(ImageName.parse(source)))
    if found is None:
        raise RefusedByWindows(f"Error response from daemon: No such image: {source}")
    store.name_image(spell(wanted), found)


def load(machine: Machine, tarball: str) -> None:
    """`docker load`: reads manifest.json."""
    store = open_docker(machine)
    with tarfile.open(fileobj=io.BytesIO(machine.files.read(tarball))) as archive:
        members = {one.name: content.read() for one in archive if (content := archive.extractfile(one))}
    if "manifest.json" not in members:
        raise RefusedByWindows("open manifest.json: The system cannot find the file specified.")
    for row in json.loads(members["manifest.json"]):
        _check_host(machine, json.loads(members[row["Config"]]))
        layers = [members[path] for path in row["Layers"]]
        id_ = store.keep(members[row["Config"]], [_unpacked(layer) for layer in layers])
        for name in row["RepoTags"]:
            store.name_image(spell(ImageName.parse(name)), id_)


def _unpacked(layer: bytes) -> bytes:
    return gzip.decompress(layer) if layer.startswith(b"\x1f\x8b") else layer


def _prefer(machine: Machine, rows: Sequence[dict[str, Any]]) -> str:
    """The first manifest of the host's own build, or else the first for Windows."""
    platforms = {str(row["digest"]): row.get("platform", {}) for row in rows}
    usable = [digest for digest, one in platforms.items() if (one.get("os"), one.get("architecture")) == _PLATFORM]
    if not usable:
        raise RefusedByWindows("no matching manifest for windows/amd64 in the manifest list entries")
    own = [digest for digest in usable if build_of(platforms[digest].get("os.version", "")) == int(machine.build)]
    return [*own, *usable][0]


_PLATFORM: Final = ("windows", "amd64")


def _check_host(machine: Machine, config: dict[str, Any]) -> None:
    if (config.get("os"), config.get("architecture")) != _PLATFORM:
        raise RefusedByWindows(f'image operating system "{config.get("os")}" cannot be used on this platform')
    if build_of(config.get("os.version", "")) > int(machine.build):
        version = config["os.version"]
        raise RefusedByWindows(f"a Windows version {version}-based image is incompatible with a {machine.build} host")
