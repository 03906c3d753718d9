"""The container runtimes of a node: what answers their pipes, and how kubelet reaches Docker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.catalog.docker import find_client
from imagegen.rehearsal.machine.docker_engine import (
    CRI_DOCKERD,
    CRI_DOCKERD_PIPE,
    DOCKER,
    DOCKER_PIPE,
    cri_dockerd_fault,
    docker_fault,
)
from imagegen.rehearsal.node.facts import reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.windows import Machine

CONTAINERD_PIPE: Final = "npipe:////./pipe/containerd-containerd"
# The service behind each pipe.
PIPES: Final = {CONTAINERD_PIPE: "containerd", CRI_DOCKERD_PIPE: CRI_DOCKERD, DOCKER_PIPE: DOCKER}
_NPIPE: Final = "npipe:////./pipe/"


def find_fault(machine: Machine, socket: str) -> str:
    """Why nothing answers a pipe. Empty if something does."""
    service = PIPES.get(socket)
    if service is None:
        return "no runtime has this pipe"
    if service == CRI_DOCKERD:
        return cri_dockerd_fault(machine)
    if service == DOCKER:
        return docker_fault(machine)
    return "" if machine.services.is_running(service) else f"service {service} does not run"


def uses_dockershim(values: Mapping[str, str], minor: str) -> bool:
    """Whether kubelet with these flags reaches Docker by itself."""
    return not reached(minor, "no_dockershim") and values.get("container-runtime", "docker") == "docker"


def dockershim_fault(machine: Machine, endpoint: str, minor: str) -> str:
    """Why kubelet cannot reach Docker by itself. It then answers at the endpoint, which must be free."""
    if not endpoint.startswith(_NPIPE) or endpoint in PIPES:
        return f"kubelet cannot listen at {endpoint}"
    return docker_fault(machine, find_client(minor, None))
