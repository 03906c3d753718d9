"""The container images of the booted model machine, which reaches no registry: what its runtime would say.

https://github.com/containerd/containerd: internal/cri/server/sandbox_run.go and container_create.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imagegen.oci.names import chain_id
from imagegen.rehearsal.machine import docker_store
from imagegen.rehearsal.machine.container_store import PINNED, open_store, sandbox_image
from imagegen.rehearsal.machine.image_pull import can_run, choose_manifest, pull
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec


class _ContainerdImages:
    def __init__(self, machine: Machine, spec: Spec) -> None:
        self._machine, self._store = machine, open_store(machine)
        self._pins = spec.facts.containerd_pins_images
        self.sandbox = sandbox_image(self._store.config)

    def config(self, name: str) -> dict[str, Any] | None:
        """The configuration of the image that has this name. None if no image has it."""
        found = self._store.images().get(name)
        if found is None:
            return None
        top = self._store.read(found["target"])
        manifest = self._store.read(choose_manifest(self._machine, top["manifests"])) if "manifests" in top else top
        return self._store.read(manifest["config"]["digest"])

    def has_layers(self, chain: str) -> bool:
        return self._store.has_snapshot(chain)

    def pull(self, name: str) -> None:
        pull(self._machine, name)

    def may_be_deleted(self) -> bool:
        labels = self._store.images()[str(ImageName.parse(self.sandbox))]["labels"]
        return self._pins and labels.get(PINNED[0]) != PINNED[1]

    def digest(self, name: str) -> str:
        found = self._store.images().get(name)
        return str(found["target"]) if found else ""


class _DockerImages:
    def __init__(self, machine: Machine, spec: Spec) -> None:
        self._machine, self._store = machine, docker_store.open_docker(machine)
        self.sandbox = spec.config.kubernetes.pause_image or ""

    def config(self, name: str) -> dict[str, Any] | None:
        found = self._store.ids().get(docker_store.spell(ImageName.parse(name)))
        return None if found is None else self._store.config(found)

    def has_layers(self, chain: str) -> bool:
        return self._store.has_layers(chain)

    def pull(self, name: str) -> None:
        docker_store.pull(self._machine, name)

    def may_be_deleted(self) -> bool:
        return False

    def digest(self, name: str) -> str:
        return self._store.ids().get(docker_store.spell(ImageName.parse(name)), "")


Store = _ContainerdImages | _DockerImages


def open_images(machine: Machine, spec: Spec) -> Store:
    """The images of the container runtime. Raise the error with which it ends."""
    return _DockerImages(machine, spec) if spec.config.runtime.docker else _ContainerdImages(machine, spec)


def find_sandbox_fault(machine: Machine, spec: Spec) -> str:
    """Why no sandbox starts. The sandbox's image is the one of the runtime's own settings."""
    try:
        store = open_images(machine, spec)
        fault = find_fault(machine, spec, store.sandbox)
        if not fault and store.may_be_deleted():
            return f"{store.sandbox} is not pinned, so kubelet deletes it when the disk fills up"
    except RefusedByWindows as refusal:
        return str(refusal)
    return fault


def find_fault(machine: Machine, spec: Spec, reference: str) -> str:
    """Why no container of the image starts. Empty if one does."""
    name = str(ImageName.parse(reference))
    try:
        store = open_images(machine, spec)
        config = store.config(name)
        if config is None:
            store.pull(name)
            return f"the rehearsal has no answer for {name}: a registry could be reached"
    except RefusedByWindows as refusal:
        return f"{name}: {refusal}"
    version, layers = config.get("os.version", ""), chain_id(config["rootfs"]["diff_ids"])
    if not can_run(machine, version) and not machine.runs_hypervisor:
        return f"{name} is for Windows {version}, and the machine has build {machine.build}"
    return "" if store.has_layers(layers) else f"{name} is not unpacked: there is no snapshot {layers}"
