"""The checks of `kubeadm join` before it changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.catalog.facts import minor as minor_of
from imagegen.catalog.facts import numbers
from imagegen.rehearsal.boot.programs import find_program, full_path
from imagegen.rehearsal.machine.access import ADMINISTRATORS
from imagegen.rehearsal.node.facts import SERVICE, reached, read_version
from imagegen.rehearsal.node.join_config import CONTAINERD, DOCKER
from imagegen.rehearsal.node.kubelet_flags import is_docker
from imagegen.rehearsal.node.runtimes import find_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.boot.model import Process
    from imagegen.rehearsal.node.join_config import JoinConfiguration

# The name of the check and what it found, as kubeadm prints it.
Finding = tuple[str, str]
_SYSTEM_NAMES = frozenset({"system", "localsystem", "nt authority\\system"})


def find_privilege_faults(process: Process, minor: str) -> Iterator[Finding]:
    """kubeadm checks this first, and alone."""
    user = process.user.lower()
    if user in _SYSTEM_NAMES:
        if reached(minor, "asks_for_groups") and not reached(minor, "asks_for_elevation"):
            yield "IsPrivilegedUser", "cannot get group IDs for current user: The user name could not be found."
        return
    account = process.machine.accounts.user(user.rpartition("\\")[2])
    groups = process.machine.accounts.groups_of(account) if account else ()
    if ADMINISTRATORS not in {group.sid for group in groups}:
        yield "IsPrivilegedUser", "the kubeadm process must be run by a user with elevated privileges"


def find_faults(process: Process, configuration: JoinConfiguration, minor: str) -> Iterator[Finding]:
    files, services = process.machine.files, process.machine.services
    manifests = full_path(process.folder, "/etc/kubernetes/manifests")
    if not reached(minor, "manifests_may_exist") and files.is_folder(manifests) and files.names(manifests):
        yield r"DirAvailable-\etc\kubernetes\manifests", r"\etc\kubernetes\manifests is not empty"
    for name in ("kubelet.conf", "bootstrap-kubelet.conf"):
        if files.exists(full_path(process.folder, f"/etc/kubernetes/{name}")):
            yield rf"FileAvailable-\etc\kubernetes\{name}", rf"\etc\kubernetes\{name} already exists"
    yield from _find_runtime_faults(process, configuration, minor)
    yield from _find_version_faults(process, minor)
    if services.is_serving(SERVICE):
        yield "Port-10250", "Port 10250 is in use"
    if files.exists(full_path(process.folder, configuration.ca_path)):
        yield f"FileAvailable-{configuration.ca_path.replace('/', '-')}", f"{configuration.ca_path} already exists"


def find_warnings(process: Process) -> Iterator[Finding]:
    if not process.machine.services.exists(SERVICE):
        yield f"Service-{SERVICE.title()}", f"{SERVICE} service does not exist"


def _find_runtime_faults(process: Process, configuration: JoinConfiguration, minor: str) -> Iterator[Finding]:
    socket, lead = configuration.cri_socket, "container runtime is not running:"
    if is_docker(socket, minor):
        # kubeadm runs `docker info`.
        if find_program(process, "docker") is None:
            yield "CRI", f'{lead} output: , error: exec: "docker": executable file not found in %PATH%'
        elif fault := find_fault(process.machine, DOCKER):
            yield "CRI", f"{lead} {fault}"
    elif socket == DOCKER:
        yield "CRI", f'{lead} no runtime answers "{socket}" (known: {CONTAINERD}, ...)'
    elif fault := find_fault(process.machine, socket):
        yield "CRI", f'{lead} "{socket}" is not answered, {fault}'


def _find_version_faults(process: Process, minor: str) -> Iterator[Finding]:
    program = find_program(process, "kubelet")
    if program is None:
        message = "cannot execute 'kubelet --version': executable file not found in %PATH%"
        yield "KubeletVersion", f"couldn't get kubelet version: {message}"
        return
    version = read_version(process.machine.files, program)
    oldest = numbers(minor)[1] - (3 if reached(minor, "kubelet_may_be_three_minors_older") else 1)
    if numbers(minor_of(version))[1] < oldest:
        yield "KubeletVersion", f'Kubelet version "{version}" is lower than kubeadm can support. Please upgrade kubelet'
