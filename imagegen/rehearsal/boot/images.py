"""Starts a pod of each pulled image on the booted model machine, which reaches no registry: what its runtime would say.

https://github.com/containerd/containerd: internal/cri/server/sandbox_run.go and container_create.go.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from imagegen.boot import facts
from imagegen.oci.names import build_of, chain_id
from imagegen.rehearsal.boot.hyper_v import HANDLER, find_handlers
from imagegen.rehearsal.machine import docker_store
from imagegen.rehearsal.machine.container_store import PINNED, open_store, sandbox_image
from imagegen.rehearsal.machine.image_pull import can_run, choose_manifest, pull
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec


@dataclasses.dataclass(frozen=True)
class Pulled:
    """The images that the config pulls, and whether the sandbox's must be pinned. Empty if it pulls none."""

    names: Sequence[str] = ()
    pins_sandbox: bool = False


NOTHING_PULLED: Final = Pulled()


def describe_pulled(spec: Spec) -> Pulled:
    config = spec.config
    tarballs = [tarball.name for tarball in config.image_tarballs]
    return Pulled(
        (*config.windows.container_images, *config.images, *spec.facts.cni_images, *tarballs),
        spec.facts.containerd_pins_images,
    )


def start_pods(machine: Machine, pulled: Pulled, docker: facts.DockerPods | None) -> Iterator[facts.Pod]:
    """A sandbox, and a pod of each image. The sandbox's image is the one of the runtime's own settings."""
    if not pulled.names:
        return
    try:
        store = _DockerImages(machine, docker.sandbox_image) if docker else _ContainerdImages(machine)
    except RefusedByWindows as refusal:
        yield facts.Pod(image="", failure=str(refusal))
        return
    failure = _why_not(machine, store, store.sandbox)
    if not failure and pulled.pins_sandbox and not store.is_pinned(store.sandbox):
        failure = f"{store.sandbox} is not pinned, so kubelet deletes it when the disk fills up"
    yield facts.Pod(image="", failure=failure)
    for name in pulled.names:
        yield facts.Pod(image=name, failure=_why_not(machine, store, name))


class _ContainerdImages:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._store = machine, open_store(machine)
        self.sandbox = sandbox_image(self._store.config)

    def config(self, reference: str) -> dict[str, Any] | None:
        """The configuration of the image that has this name. None if no image has it."""
        found = self._store.images().get(str(ImageName.parse(reference)))
        if found is None:
            return None
        top = self._store.read(found["target"])
        manifest = self._store.read(choose_manifest(self._machine, top["manifests"])) if "manifests" in top else top
        return self._store.read(manifest["config"]["digest"])

    def has_layers(self, chain: str) -> bool:
        return self._store.has_snapshot(chain)

    def pull(self, reference: str) -> None:
        pull(self._machine, str(ImageName.parse(reference)))

    def is_pinned(self, reference: str) -> bool:
        labels = self._store.images()[str(ImageName.parse(reference))]["labels"]
        return bool(labels.get(PINNED[0]) == PINNED[1])

    def isolates(self, build: str) -> bool:
        return f"{HANDLER}-{build}" in find_handlers(self._machine)


class _DockerImages:
    def __init__(self, machine: Machine, sandbox: str) -> None:
        self._machine, self._store = machine, docker_store.open_docker(machine)
        self.sandbox = sandbox

    def config(self, reference: str) -> dict[str, Any] | None:
        found = self._store.ids().get(docker_store.spell(ImageName.parse(reference)))
        return None if found is None else self._store.config(found)

    def has_layers(self, chain: str) -> bool:
        return self._store.has_layers(chain)

    def pull(self, reference: str) -> None:
        docker_store.pull(self._machine, str(ImageName.parse(reference)))

    def is_pinned(self, _reference: str) -> bool:
        return False

    def isolates(self, _build: str) -> bool:
        return True


def find_refusal(machine: Machine, reference: str) -> str:
    """Why containerd starts no container of an image, while no registry can be reached. Empty if it does."""
    return _why_not(machine, _ContainerdImages(machine), reference)


def _why_not(machine: Machine, store: _ContainerdImages | _DockerImages, reference: str) -> str:
    """Why no container of the image starts. Empty if one does."""
    name = str(ImageName.parse(reference))
    try:
        config = store.config(reference)
        if config is None:
            store.pull(reference)
            return f"the rehearsal has no answer for {name}: a registry could be reached"
    except RefusedByWindows as refusal:
        return f"{name}: {refusal}"
    version, layers = config.get("os.version", ""), chain_id(config["rootfs"]["diff_ids"])
    isolated = machine.runs_hypervisor and store.isolates(str(build_of(version)))
    if not can_run(machine, version) and not isolated:
        return f"{name} is for Windows {version}, and the machine has build {machine.build}"
    return "" if store.has_layers(layers) else f"{name} is not unpacked: there is no snapshot {layers}"
