"""Starts a pod of each pulled image on the booted model machine, which reaches no registry: what containerd would say.

https://github.com/containerd/containerd: internal/cri/server/sandbox_run.go and container_create.go.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from imagegen.artifacts.image_lookup import chain_id
from imagegen.boot import facts
from imagegen.rehearsal.machine.container_store import PINNED, ContainerStore, open_store, sandbox_image
from imagegen.rehearsal.machine.image_pull import can_run, choose_manifest, pull
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.resources.image_name import ImageName

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
    return Pulled(
        (*config.windows.container_images, *config.images, *spec.facts.cni_images), spec.facts.containerd_pins_images
    )


def start_pods(machine: Machine, pulled: Pulled) -> Iterator[facts.Pod]:
    """A sandbox, and a pod of each image. The sandbox's image is the one of containerd's own configuration."""
    if not pulled.names:
        return
    try:
        store = open_store(machine)
    except RefusedByWindows as refusal:
        yield facts.Pod(image="", failure=str(refusal))
        return
    sandbox = sandbox_image(store.config)
    failure = find_refusal(machine, store, sandbox)
    if not failure and pulled.pins_sandbox and not _is_pinned(store, sandbox):
        failure = f"{sandbox} is not pinned, so kubelet deletes it when the disk fills up"
    yield facts.Pod(image="", failure=failure)
    for name in pulled.names:
        yield facts.Pod(image=name, failure=find_refusal(machine, store, name))


def find_refusal(machine: Machine, store: ContainerStore, reference: str) -> str:
    """Why no container of the image starts. Empty if one does."""
    name = str(ImageName.parse(reference))
    found = store.images().get(name)
    try:
        if found is None:
            pull(machine, name)
            return f"the rehearsal has no answer for {name}: a registry could be reached"
        top = store.read(found["target"])
        manifest = store.read(choose_manifest(machine, top["manifests"])) if "manifests" in top else top
        return _find_unfit(machine, store, store.read(manifest["config"]["digest"]), name)
    except RefusedByWindows as refusal:
        return f"{name}: {refusal}"


def _find_unfit(machine: Machine, store: ContainerStore, config: dict[str, Any], name: str) -> str:
    version = config.get("os.version", "")
    if not can_run(machine, version):
        return f"{name} is for Windows {version}, and the machine has build {machine.build}"
    layers = chain_id(config["rootfs"]["diff_ids"])
    return "" if store.has_snapshot(layers) else f"{name} is not unpacked: there is no snapshot {layers}"


def _is_pinned(store: ContainerStore, reference: str) -> bool:
    labels = store.images()[str(ImageName.parse(reference))]["labels"]
    return bool(labels.get(PINNED[0]) == PINNED[1])
