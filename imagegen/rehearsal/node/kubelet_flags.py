"""The flags that kubeadm writes for kubelet to kubeadm-flags.env."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.node.facts import pause_image, reached
from imagegen.rehearsal.node.join_config import DOCKER, DOCKER_OF_1_14

if TYPE_CHECKING:
    from imagegen.rehearsal.node.join_config import JoinConfiguration


def flags_file(
    configuration: JoinConfiguration, minor: str, *, host_name: str, repository: str, socket_is_in_config: bool
) -> bytes:
    """The content of the file. `repository` is the image repository of the cluster, if it has its own."""
    flags = _make_flags(configuration, minor, host_name, repository)
    if socket_is_in_config:
        flags.pop("container-runtime-endpoint", None)
    line = " ".join(f"--{name}={value}" for name, value in _merge(flags, configuration.extra_args, minor))
    return f"KUBELET_KUBEADM_ARGS={_quote(line) if reached(minor, 'flags_are_quoted') else line}\n".encode()


def is_docker(socket: str, minor: str) -> bool:
    """Whether kubeadm takes the socket for that of Docker, which kubelet had built in."""
    named = DOCKER if reached(minor, "socket_has_scheme_npipe") else DOCKER_OF_1_14
    return socket == named and not reached(minor, "no_dockershim")


def registered_name(configuration: JoinConfiguration) -> str:
    """The name of the node: the last `hostname-override` of the extra arguments counts."""
    named = [value for name, value in configuration.extra_args if name == "hostname-override"]
    return named[-1] if named else configuration.name


def _make_flags(configuration: JoinConfiguration, minor: str, host_name: str, repository: str) -> dict[str, str]:
    flags: dict[str, str] = {}
    docker = is_docker(configuration.cri_socket, minor)
    if docker:
        flags["network-plugin"] = "cni"
    else:
        flags["container-runtime-endpoint"] = configuration.cri_socket
        if not reached(minor, "no_container_runtime_flag"):
            flags["container-runtime"] = "remote"
    if not reached(minor, "no_pause_flag") and (docker or reached(minor, "pause_for_every_runtime")):
        image = pause_image(minor)
        flags["pod-infra-container-image"] = f"{repository}/{image.rpartition('/')[2]}" if repository else image
    if configuration.taints:
        flags["register-with-taints"] = ",".join(_taint_text(taint) for taint in configuration.taints)
    name = registered_name(configuration)
    if name != host_name.lower():
        flags["hostname-override"] = name
    return flags


def _merge(flags: dict[str, str], extra: tuple[tuple[str, str], ...], minor: str) -> list[tuple[str, str]]:
    """The extra arguments replace kubeadm's own. As a list they keep their order and stand at the end."""
    if not reached(minor, "flags_are_a_list"):
        return sorted({**flags, **dict(extra)}.items())
    replaced = {name for name, _ in extra}
    return [*(item for item in sorted(flags.items()) if item[0] not in replaced), *extra]


def _taint_text(taint: dict[str, str]) -> str:
    key, value, effect = (taint.get(part, "") for part in ("key", "value", "effect"))
    if not effect:
        return f"{key}={value}:" if value else key
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _quote(text: str) -> str:
    """Text in Go's double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.replace("\n", "\\n").replace("\t", "\\t")
