"""Looks at the network of pods on a booted model machine: what the cluster knows of it, and whether a pod can start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.boot import facts
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.cni_plugins import start_pod
from imagegen.rehearsal.node.flanneld import HOST_GW
from imagegen.rehearsal.node.kube_proxy import SERVICE
from imagegen.rehearsal.node.pod_network import PodNetworkError, find_folders, find_unready, read_configuration
from imagegen.rehearsal.node.pod_routes import find_missing_routes

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster
    from imagegen.rehearsal.node.calico import CalicoFelix
    from imagegen.rehearsal.node.kube_proxy import KubeProxy
    from imagegen.rehearsal.node.kube_proxy_pods import KubeProxyPods


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


def look_at_kube_proxy_pods(pods: KubeProxyPods) -> facts.KubeProxy:
    return facts.KubeProxy(
        is_asked=True, failure=pods.failure, node=pods.node, network=pods.network, waits=not pods.is_serving
    )


def look_at_policies(machine: Machine, felix: CalicoFelix, *, is_asked: bool) -> facts.NetworkPolicies | None:
    """Whether policies are enforced in the network of pods. None if nobody asks for it."""
    if not is_asked:
        return None
    try:
        network = read_configuration(machine, find_folders(machine)).name
    except (PodNetworkError, RefusedByWindows):
        network = ""
    failure = machine.services.refusal(felix.service) or "".join(felix.ends[-1:] if not felix.is_serving else ())
    return facts.NetworkPolicies(
        is_running=felix.is_serving,
        failure=failure,
        networks=felix.networks,
        is_enforced=felix.enforces_in(network),
    )


def _start_pod(machine: Machine) -> str:
    try:
        start_pod(machine)
    except (PodNetworkError, RefusedByWindows) as error:
        return str(error)
    return ""
