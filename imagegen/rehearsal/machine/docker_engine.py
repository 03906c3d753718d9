r"""Docker and cri-dockerd on the model machine: what keeps each from answering its pipe, and Docker's networks.

Docker is a service itself. cri-dockerd is the program of a service of nssm, which runs whatever its program does.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from typing import TYPE_CHECKING, Final

from imagegen.catalog.docker import can_lower_api, find_client, find_engine
from imagegen.catalog.facts import numbers
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.files import parent, parts
from imagegen.rehearsal.machine.hns import Network
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.facts import read_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.catalog.docker import Client, Engine
    from imagegen.rehearsal.machine.windows import Machine

DOCKER, CRI_DOCKERD = "docker", "cri-dockerd"
DOCKER_PIPE: Final = "npipe:////./pipe/docker_engine"
CRI_DOCKERD_PIPE: Final = "npipe:////./pipe/cri-dockerd"
EVENTS: Final = r"HKLM:\SYSTEM\CurrentControlSet\Services\EventLog\Application\docker"
# Windows chooses one of the private ranges.
_NAT: Final = ("172.20.0.0/16", "172.20.0.1")
_NSSM: Final = "nssm.exe"
_VERSION: Final = re.compile(rb"dockerd\.exe ([0-9.]+(?:-[0-9A-Za-z.]+)?)")
# The flags of cri-dockerd that the rehearsal has a model of (config/options.go and cmd/cri/options/options.go).
_FLAGS: Final = frozenset(
    {
        *("docker-endpoint", "container-runtime-endpoint", "network-plugin", "cni-bin-dir", "cni-conf-dir"),
        *("pod-infra-container-image", "image-pull-progress-deadline"),
    }
)
_DEFAULTS: Final = {
    "docker-endpoint": DOCKER_PIPE,
    "container-runtime-endpoint": CRI_DOCKERD_PIPE,
    "network-plugin": "cni",
    "cni-bin-dir": "C:\\k\\cni\\bin\\",
    "cni-conf-dir": r"C:\k\cni\config",
    "pod-infra-container-image": "registry.k8s.io/pause:3.10",
    "image-pull-progress-deadline": "1m",
}


@dataclasses.dataclass(frozen=True)
class CriDockerd:
    """The cri-dockerd that nssm is told to run."""

    program: str
    flags: Mapping[str, str]
    log: str


def read_docker_version(machine: Machine, program: str) -> str:
    """The version of dockerd.exe, also that of a preview."""
    read_version(machine.files, program)
    found: list[bytes] = _VERSION.findall(machine.files.read(program))
    return found[0].decode()


def docker_fault(machine: Machine, client: Client | None = None) -> str:
    """Why Docker does not answer its pipe, or this client. Empty if it does."""
    program, given = _read_command(machine)
    if not machine.services.is_running(DOCKER):
        return f"service {DOCKER} does not run"
    settings = _read_settings(machine, given.get("--config-file", ""))
    hosts = settings.get("hosts")
    if isinstance(hosts, list) and not {DOCKER_PIPE, "npipe://"} & {*map(str, hosts)}:
        return f"Docker does not listen at {DOCKER_PIPE}"
    if client is None:
        return ""
    version = read_docker_version(machine, program)
    engine = find_engine(version)
    if engine is None:
        raise UnknownCommandError(f"the catalogue has no Docker {version}, so its API is unknown")
    return _api_fault(engine, client, _least(engine, version, settings))


def _least(engine: Engine, version: str, settings: Mapping[str, object]) -> str:
    lowered = settings.get("min-api-version")
    return str(lowered) if lowered and can_lower_api(version) else engine.least_api


def _api_fault(engine: Engine, client: Client, least: str) -> str:
    for is_so, words_ in (
        (numbers(client.api) < numbers(least), f"too old. Minimum supported API version is {least}"),
        (numbers(client.api) > numbers(engine.api), f"too new. Maximum supported API version is {engine.api}"),
    ):
        if is_so:
            return f"Error response from daemon: client version {client.api} is {words_}"
    return ""


def _read_command(machine: Machine) -> tuple[str, dict[str, str]]:
    """The program of Docker's service, and the words after its flags."""
    program, *arguments = words(machine.services.command(DOCKER)) or [""]
    return program, dict(itertools.pairwise([*arguments, ""]))


def _read_settings(machine: Machine, path: str) -> dict[str, object]:
    return dict(json.loads(machine.files.read(path))) if path and machine.files.is_file(path) else {}


def read_cri_dockerd(machine: Machine) -> CriDockerd | None:
    """What nssm is told to run for the service. None if the service is not nssm's."""
    command = words(machine.services.command(CRI_DOCKERD))
    if not command or parts(command[0])[-1].lower() != _NSSM:
        return None
    key = rf"{machine.services.key(CRI_DOCKERD)}\Parameters"
    given = {name: machine.registry.text(key, name) or "" for name in ("Application", "AppParameters", "AppStdout")}
    flags = {}
    for word in words(given["AppParameters"]):
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not equals or name not in _FLAGS:
            raise UnknownCommandError(f"cri-dockerd {word}: the rehearsal has no model of it")
        flags[name] = value
    return CriDockerd(given["Application"], {**_DEFAULTS, **flags}, given["AppStdout"])


def cri_dockerd_fault(machine: Machine) -> str:
    """Why nobody answers the pipe of cri-dockerd. Empty if it does."""
    found = read_cri_dockerd(machine)
    if found is None or not machine.services.is_running(CRI_DOCKERD):
        return f"service {CRI_DOCKERD} does not run"
    if not found.program or not machine.files.is_file(found.program):
        return f"{_NSSM} cannot start {found.program or 'a program without a name'}"
    if not found.log or not machine.files.is_folder(parent(found.log)):
        return f"{_NSSM} cannot open its log {found.log}"
    if found.flags["docker-endpoint"] != DOCKER_PIPE:
        return f"cri-dockerd looks for Docker at {found.flags['docker-endpoint']}"
    if found.flags["container-runtime-endpoint"] != CRI_DOCKERD_PIPE:
        return f"cri-dockerd listens at {found.flags['container-runtime-endpoint']}"
    version = read_version(machine.files, found.program)
    client = find_client("", version)
    if client is None:
        raise UnknownCommandError(f"the catalogue has no cri-dockerd {version}, so its API is unknown")
    if fault := docker_fault(machine, client):
        return f"failed to get docker version from dockerd: {fault}"
    return ""


def make_network(machine: Machine, name: str) -> None:
    """`docker network create -d nat`."""
    if fault := docker_fault(machine):
        raise RefusedByWindows(f"error during connect: {fault}")
    machine.hns.create(Network(name, "NAT", *_NAT))
