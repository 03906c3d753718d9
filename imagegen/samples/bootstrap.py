"""The commands that the user data of a node runs, as the bootstrap config of Cluster API has them. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imagegen.catalog.facts import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.samples.network import Network
    from imagegen.settle.spec import Spec


def bootstrap_context(spec: Spec, cluster_cidr: str, service_cidr: str, network: Network) -> dict[str, object]:
    """The values of a cloud's template. Commands are quoted as YAML needs it."""
    config = spec.config
    folder, powershell = config.kubernetes.install_path, f"powershell -NoProfile {spec.facts.script_policy}-File"
    pre = [f"{powershell} {path} || exit 1" for path in _paths(folder, "pre-kubeadm", config.kubeadm_scripts.pre)]
    post = []
    if spec.facts.cni_files:
        call = rf"{powershell} {folder}\set-pod-network.ps1"
        named = "" if spec.facts.pod_network else f" -NetworkName {network.name or 'NETWORK_NAME'}"
        ranges = f"-ClusterCidr {cluster_cidr} -ServiceCidr {service_cidr}"
        # Each node has its own, which a template cannot know.
        address = " -SourceVip SOURCE_VIP" if spec.facts.asks_source_address and network.overlay else ""
        post.append(f"{call} {ranges}{named}{address} || exit 1")
    post += [f"{powershell} {path}" for path in _paths(folder, "post-kubeadm", config.kubeadm_scripts.post)]
    asks_docker = config.runtime.docker is not None and config.runtime.docker.cri_dockerd is None
    return {
        "name": f"{config.name}-{spec.target}",
        "settings": spec.settings,
        "pre": [json.dumps(command) for command in pre],
        "post": [json.dumps(command) for command in post],
        "files": [
            {"path": f"/etc/kubernetes/{name}.conf", "secret": f"{name}-kubeconfig"} for name in find_accounts(spec)
        ],
        "socket": _socket(spec),
        # kubeadm names its own for Docker, which may not run on the node's Windows.
        "sandbox_image": config.kubernetes.pause_image if asks_docker else None,
    }


def _paths(folder: str, name: str, scripts: Sequence[str]) -> Iterator[str]:
    """The paths of the scripts that the step `kubeadm-scripts` puts on the image."""
    for number, script in enumerate(scripts, 1):
        yield rf"{folder}\{name}\{number:02}-{script.rpartition('/')[2]}"


def find_accounts(spec: Spec) -> list[str]:
    """The kubeconfigs that services of the node read, by their names in `C:\\etc\\kubernetes`."""
    plugin = spec.config.cni.plugin
    asked = {
        "flannel": plugin == "flannel",
        "kube-proxy": spec.config.kube_proxy == "service",
        "calico": spec.facts.calico_version is not None,
        "hybrid-overlay": plugin == "ovn-kubernetes",
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _socket(spec: Spec) -> str:
    runtime = spec.config.runtime
    if runtime.containerd:
        return "npipe:////./pipe/containerd-containerd"
    if runtime.docker and runtime.docker.cri_dockerd:
        return "npipe:////./pipe/cri-dockerd"
    # kubeadm 1.14 knows no pipes.
    is_first = numbers(spec.config.kubernetes.version)[:2] <= (1, 14)
    return "tcp://localhost:2375" if is_first else "npipe:////./pipe/docker_engine"
