"""Starts a pod of each pulled image on the booted model machine, which reaches no registry: what its runtime would say.

https://github.com/containerd/containerd: internal/cri/server/sandbox_run.go and container_create.go.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.rehearsal.machine.programs import read_containerd_config, sandbox_image
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
    settings = read_containerd_config(machine.files, machine.services.command("containerd"))
    sandbox = docker.sandbox_image if docker else sandbox_image(settings)
    failure = find_refusal(machine, sandbox)
    if not failure and pulled.pins_sandbox and not machine.images[str(ImageName.parse(sandbox))].pinned:
        failure = f"{sandbox} is not pinned, so kubelet deletes it when the disk fills up"
    yield facts.Pod(image="", failure=failure)
    for name in pulled.names:
        yield facts.Pod(image=name, failure=find_refusal(machine, name))


def find_refusal(machine: Machine, reference: str) -> str:
    """Why no container of an image starts, while no registry can be reached. Empty if it does."""
    name = str(ImageName.parse(reference))
    return "" if name in machine.images else f"{name} is not there, and no registry can be reached"
