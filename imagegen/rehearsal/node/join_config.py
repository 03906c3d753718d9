"""The configuration of `kubeadm join`: decoded, with kubeadm's defaults, and checked as kubeadm checks it."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.node.decode import Decoded, KubeadmError, decode_join
from imagegen.rehearsal.node.facts import reached
from imagegen.rehearsal.node.runtimes import PIPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.windows import Machine

TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
CA_PATH = "C:/etc/kubernetes/pki/ca.crt"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_NAME = 253
_DURATION = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?")
_MINUTE = 60.0
CONTAINERD, CRI_DOCKERD, DOCKER = PIPES
# kubeadm 1.14 knew Docker's API only by this address.
DOCKER_OF_1_14 = "tcp://localhost:2375"
# The settings of real kubeadm that the rehearsal has no model of.
_NOT_MODELLED = ("controlPlane", "skipPhases", "patches", "dryRun")


@dataclasses.dataclass(frozen=True)
class JoinConfiguration:
    """What kubeadm join works with."""

    name: str
    cri_socket: str
    taints: tuple[dict[str, str], ...]
    extra_args: tuple[tuple[str, str], ...]
    ignored_errors: frozenset[str]
    endpoint: str
    token: str = dataclasses.field(repr=False)
    tls_token: str = dataclasses.field(repr=False)
    ca_hashes: tuple[str, ...]
    ca_path: str
    discovery_s: float
    tls_bootstrap_s: float
    healthy_s: float
    api_call_s: float


def load_join(
    text: bytes, minor: str, machine: Machine, *, shown_as: str, name: str = "", socket: str = ""
) -> tuple[JoinConfiguration, tuple[str, ...]]:
    """Decode, default and check. Returns the warnings too. `name` and `socket` are the flags of the command line."""
    decoded = decode_join(text, minor, shown_as)
    _check_is_modelled(decoded.data)
    configuration, warnings = _fill(decoded, minor, machine)
    faults = tuple(_find_faults(configuration, decoded.data, minor))
    if faults:
        raise KubeadmError(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]", is_validation=True)
    configuration = dataclasses.replace(
        configuration, name=name or configuration.name, cri_socket=socket or configuration.cri_socket
    )
    return configuration, (*decoded.warnings, *warnings)


def _check_is_modelled(data: dict[str, Any]) -> None:
    given = [key for key in _NOT_MODELLED if data.get(key)]
    if data.get("discovery", {}).get("file"):
        given.append("discovery.file")
    if given:
        raise UnknownCommandError(f"kubeadm join with {given[0]}: the rehearsal has no model of it")


def _fill(decoded: Decoded, minor: str, machine: Machine) -> tuple[JoinConfiguration, tuple[str, ...]]:
    registration = decoded.data.get("nodeRegistration", {})
    discovery = decoded.data.get("discovery", {})
    bootstrap, timeouts = discovery.get("bootstrapToken", {}), decoded.data.get("timeouts", {})
    socket, warnings = _fill_socket(registration.get("criSocket", ""), minor, machine)
    given = registration.get("kubeletExtraArgs", {})
    pairs = given.items() if isinstance(given, dict) else ((arg.get("name", ""), arg.get("value", "")) for arg in given)
    return JoinConfiguration(
        # kubeadm writes it in lower case, as kubelet does with its own.
        name=(registration.get("name") or machine.host_name).strip().lower(),
        cri_socket=socket,
        taints=tuple(registration.get("taints", ())),
        extra_args=tuple(sorted(pairs) if isinstance(given, dict) else pairs),
        ignored_errors=frozenset(name.lower() for name in registration.get("ignorePreflightErrors", ())),
        endpoint=bootstrap.get("apiServerEndpoint", ""),
        token=bootstrap.get("token", ""),
        tls_token=discovery.get("tlsBootstrapToken", "") or bootstrap.get("token", ""),
        ca_hashes=tuple(bootstrap.get("caCertHashes", ())),
        ca_path=decoded.data.get("caCertPath", "") or CA_PATH,
        discovery_s=_seconds(timeouts.get("discovery", "") or discovery.get("timeout", ""), 5 * _MINUTE),
        tls_bootstrap_s=_seconds(timeouts.get("tlsBootstrap", ""), 5 * _MINUTE),
        healthy_s=_seconds(timeouts.get("kubeletHealthCheck", ""), 4 * _MINUTE),
        api_call_s=_seconds(timeouts.get("kubernetesAPICall", ""), _MINUTE),
    ), warnings


def _fill_socket(given: str, minor: str, machine: Machine) -> tuple[str, tuple[str, ...]]:
    if not given:
        return _detect_socket(minor, machine), ()
    if not reached(minor, "no_dockershim") or given.startswith("npipe"):
        return given, ()
    return f"npipe://{given}", (f"Usage of CRI endpoints without URL scheme is deprecated: {given}",)


def _detect_socket(minor: str, machine: Machine) -> str:
    """The pipe that something answers. Without one kubeadm takes the default, and fails later."""
    if not reached(minor, "socket_has_scheme_npipe"):
        return DOCKER_OF_1_14
    if not reached(minor, "no_dockershim"):
        is_containerd = not machine.services.is_running("docker") and machine.services.is_running("containerd")
        return CONTAINERD.removeprefix("npipe://") if is_containerd else DOCKER
    found = [pipe for pipe in (CONTAINERD, CRI_DOCKERD) if machine.services.is_running(PIPES[pipe])]
    if len(found) > 1:
        raise KubeadmError(
            "found multiple CRI endpoints on the host. Please define which one do you wish to use by setting the "
            f"'criSocket' field in the kubeadm configuration file: {', '.join(found)}"
        )
    return found[0] if found else CONTAINERD


def _seconds(duration: str, default: float) -> float:
    """A duration of Go in seconds."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise KubeadmError(f'time: invalid duration "{duration}"')
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * _MINUTE + seconds if duration else default


def _find_faults(configuration: JoinConfiguration, data: dict[str, Any], minor: str) -> Iterator[str]:
    if "bootstrapToken" not in data.get("discovery", {}):
        yield 'discovery: Invalid value: "": bootstrapToken or file must be set'
    else:
        yield from _find_discovery_faults(configuration, data["discovery"]["bootstrapToken"])
    yield from _find_registration_faults(configuration, minor)
    if not re.match(r"([A-Za-z]:)?[\\/]", configuration.ca_path) or not configuration.ca_path.endswith(".crt"):
        yield f'caCertPath: Invalid value: "{configuration.ca_path}": the ca certificate path must be an absolute path'


def _find_discovery_faults(configuration: JoinConfiguration, bootstrap: dict[str, Any]) -> Iterator[str]:
    place = "discovery.bootstrapToken"
    if not configuration.ca_hashes and not bootstrap.get("unsafeSkipCAVerification"):
        yield f'{place}.caCertHashes: Invalid value: "": using token-based discovery without caCertHashes can be unsafe'
    if not TOKEN.fullmatch(configuration.token):
        yield f'{place}.token: Invalid value: "{configuration.token}": the bootstrap token is invalid'
    if not re.fullmatch(r"(\[[^]]+\]|[^:]+):[^:]*", configuration.endpoint):
        yield f'{place}.apiServerEndpoint: Invalid value: "{configuration.endpoint}": missing port in address'
    if not TOKEN.fullmatch(configuration.tls_token):
        yield f'discovery.tlsBootstrapToken: Invalid value: "{configuration.tls_token}": the bootstrap token is invalid'


def _find_registration_faults(configuration: JoinConfiguration, minor: str) -> Iterator[str]:
    name, socket = configuration.name, configuration.cri_socket
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        yield (
            f'nodeRegistration.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of '
            "lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        )
    scheme, colon, _ = socket.partition("://")
    supported = "npipe" if reached(minor, "socket_has_scheme_npipe") else "tcp"
    if colon and scheme != supported:
        yield f'nodeRegistration.criSocket: Invalid value: "{socket}": URL scheme {scheme} is not supported'
    elif not colon:
        # Go takes no path of a pipe for an absolute one.
        yield f'nodeRegistration.criSocket: Invalid value: "{socket}": path is not absolute: {socket}'
    if any(not name for name, _ in configuration.extra_args):
        yield 'nodeRegistration.kubeletExtraArgs: Invalid value: "": argument has no name'
