"""The container images of the booted model machine, which reaches no registry: why its runtime would start no pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.programs import read_containerd_config, sandbox_image
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec


def find_sandbox_fault(machine: Machine, spec: Spec) -> str:
    """Why no sandbox starts. The sandbox's image is the one of the runtime's own settings."""
    try:
        config = read_containerd_config(machine.files, machine.services.command("containerd"))
    except RefusedByWindows as refusal:
        return str(refusal)
    has_docker = spec.config.runtime.docker is not None
    if not machine.services.is_running(service := "docker" if has_docker else "containerd"):
        return f"service {service} does not run"
    sandbox = (spec.config.kubernetes.pause_image or "") if has_docker else sandbox_image(config)
    fault = find_fault(machine, sandbox)
    is_pinned = has_docker or not spec.facts.containerd_pins_images
    if not fault and not is_pinned and not machine.images[str(ImageName.parse(sandbox))].pinned:
        return f"{sandbox} is not pinned, so kubelet deletes it when the disk fills up"
    return fault


def find_fault(machine: Machine, reference: str) -> str:
    """Why no container of the image starts. Empty if one does."""
    name = str(ImageName.parse(reference))
    return "" if name in machine.images else f"{name}: it is not on the machine, and no registry can be reached"
