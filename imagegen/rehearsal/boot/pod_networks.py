"""Looks at the network of pods on a booted model machine: what the cluster knows of it, and whether a pod can start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.boot import facts
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.cni_plugins import start_pod
from imagegen.rehearsal.node.flanneld import HOST_GW
from imagegen.rehearsal.node.kube_proxy import SERVICE
from imagegen.rehearsal.node.pod_network import PodNetworkError, find_unready
from imagegen.rehearsal.node.pod_routes import find_missing_routes

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster
    from imagegen.rehearsal.node.kube_proxy import KubeProxy


def is_up(machine: Machine, cluster: Cluster) -> bool:
    """Whether the cluster knows every node as ready, and a pod can start."""
    return _is_ready(cluster) and not _start_pod(machine)


def _is_ready(cluster: Cluster) -> bool:
    return bool(cluster.nodes) and all(node.ready for node in cluster.nodes.values())


def look_at_pod_network(machine: Machine, cluster: Cluster, plugin: str, flannel: str) -> facts.PodNetwork:
    """`plugin` is that of the image, and `flannel` its backend. Without a plugin nothing is looked at."""
    if not plugin:
        return facts.PodNetwork(plugin="", unready="", refusal="", missing_routes=None)
    unready = "" if _is_ready(cluster) else find_unready(machine) or "kubelet did not report it"
    refusal = "" if unready else _start_pod(machine)
    missing = tuple(find_missing_routes(machine, cluster)) if flannel == HOST_GW else None
    return facts.PodNetwork(plugin=plugin, unready=unready, refusal=refusal, missing_routes=missing)


def look_at_kube_proxy(machine: Machine, kube_proxy: KubeProxy, *, is_asked: bool) -> facts.KubeProxy:
    """Without the service nothing is looked at."""
    return facts.KubeProxy(
        is_asked=is_asked,
        failure=machine.services.refusal(SERVICE) or "".join(kube_proxy.ends[-1:] if not kube_proxy.node else ()),
        node=kube_proxy.node,
        network=kube_proxy.network,
        waits=not kube_proxy.is_serving,
    )


def _start_pod(machine: Machine) -> str:
    try:
        start_pod(machine)
    except (PodNetworkError, RefusedByWindows) as error:
        return str(error)
    return ""
