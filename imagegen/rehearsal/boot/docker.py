"""Looks at Docker on a booted model machine, and at what starts pods with it: cri-dockerd, or kubelet itself."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.catalog.docker import find_client
from imagegen.catalog.facts import minor as minor_of
from imagegen.rehearsal.machine.docker_engine import (
    CRI_DOCKERD,
    CRI_DOCKERD_PIPE,
    DOCKER,
    DOCKER_PIPE,
    EVENTS,
    cri_dockerd_fault,
    docker_fault,
    read_cri_dockerd,
    read_docker_version,
)
from imagegen.rehearsal.machine.programs import check_can_run, words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.facts import SERVICE, reached
from imagegen.rehearsal.node.join_config import DOCKER_OF_1_14
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.kubelet_options import last_values, parse_arguments
from imagegen.rehearsal.node.runtimes import CONTAINERD_PIPE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec

HOST_NETWORK: Final = "host"
# How long the task that makes the network may take, with a run that came too early.
NETWORK_S: Final = 180.0
_ENDPOINT: Final = re.compile(r"(?i) -RuntimeEndpoint (\S+)")
_SANDBOX_FLAG: Final = "pod-infra-container-image"


@dataclasses.dataclass(frozen=True)
class WantedDocker:
    """What the config wants of Docker."""

    version: str
    kubernetes: str
    cri_dockerd: str | None
    host_network: bool
    sandbox_image: str

    @property
    def socket(self) -> str:
        """What user data must name for kubeadm."""
        if self.cri_dockerd:
            return CRI_DOCKERD_PIPE
        return DOCKER_PIPE if reached(minor_of(self.kubernetes), "socket_has_scheme_npipe") else DOCKER_OF_1_14

    @property
    def kubelet_arguments(self) -> Mapping[str, str]:
        """What user data must name for kubelet: kubeadm writes another sandbox image, if kubelet asks Docker itself."""
        return {} if self.cri_dockerd else {_SANDBOX_FLAG: self.sandbox_image}


def describe_docker(spec: Spec) -> WantedDocker | None:
    runtime, kubernetes = spec.config.runtime, spec.config.kubernetes
    if runtime.docker is None:
        return None
    return WantedDocker(
        runtime.docker.version,
        kubernetes.version,
        runtime.docker.cri_dockerd,
        runtime.fake_host_network,
        kubernetes.pause_image or "",
    )


def look_at_docker(machine: Machine, wanted: WantedDocker | None) -> facts.Docker | None:
    """What became of Docker. None if the config does not have it."""
    if wanted is None:
        return None
    command = machine.services.command(DOCKER)
    program = (words(command) or [""])[0]
    is_there = bool(program) and machine.files.is_file(program)
    messages = machine.registry.text(EVENTS, "EventMessageFile") or ""
    return facts.Docker(
        failure=_refusal(machine, command) or docker_fault(machine, find_client(wanted.kubernetes, wanted.cri_dockerd)),
        version=read_docker_version(machine, program) if is_there else "",
        wanted_version=wanted.version,
        keeps_log=bool(messages) and machine.files.is_file(messages),
        lacks_network=wanted.host_network and HOST_NETWORK not in machine.hns.networks,
    )


def look_at_pods(
    machine: Machine, wanted: WantedDocker | None, arguments: Sequence[str], layout: Mapping[str, str]
) -> facts.DockerPods | None:
    """What starts pods with Docker. `arguments` are those of the kubelet that runs. None with another runtime."""
    if wanted is None:
        return None
    values: dict[str, str] = {}
    # kubelet's own end is a fact of its own.
    with contextlib.suppress(KubeletError):
        values = last_values(parse_arguments(arguments, minor_of(wanted.kubernetes)))
    flags: Mapping[str, str] = values
    name, failure, endpoint = "kubelet", "", values.get("container-runtime-endpoint") or _configured_endpoint(machine)
    if wanted.cri_dockerd:
        found = read_cri_dockerd(machine)
        flags = found.flags if found else {}
        name, failure = CRI_DOCKERD, _refusal(machine, machine.services.command(CRI_DOCKERD))
        failure, endpoint = failure or cri_dockerd_fault(machine), flags.get("container-runtime-endpoint", "")
    return facts.DockerPods(
        name=name,
        failure=failure,
        endpoint=endpoint,
        kubelet_endpoint=values.get("container-runtime-endpoint") or _configured_endpoint(machine),
        plugin=flags.get("network-plugin", ""),
        folders=(flags.get("cni-bin-dir", ""), flags.get("cni-conf-dir", "")),
        wanted_folders=(layout["cni_bin"], layout["cni_config"]),
        sandbox_image=flags.get(_SANDBOX_FLAG, ""),
        wanted_sandbox_image=wanted.sandbox_image,
    )


def _configured_endpoint(machine: Machine) -> str:
    """Where a kubelet that does not run would look for its runtime, by the parameters of its script."""
    parameters = machine.registry.text(rf"{machine.services.key(SERVICE)}\Parameters", "AppParameters") or ""
    found = _ENDPOINT.search(f"{machine.services.command(SERVICE)} {parameters}")
    return found[1] if found else CONTAINERD_PIPE


def _refusal(machine: Machine, command: str) -> str:
    """Why Windows cannot start the service with this command."""
    if not command:
        return "it is not in the image"
    try:
        check_can_run(machine.files, machine.features, command)
    except RefusedByWindows as refusal:
        return str(refusal)
    return ""
