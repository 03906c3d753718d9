"""The routes between the pods of a booted node and those of the control plane, with flannel's host-gw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.hns import NODE_ADDRESS
from imagegen.rehearsal.node.api_server import ADDRESS, Cluster
from imagegen.rehearsal.node.flanneld import find_routes, lease
from imagegen.rehearsal.node.objects import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.windows import Machine

_NAME, _PODS = "control-plane", "10.244.0.0/24"


def make_cluster(version: str, plugin: str, backend: str) -> Cluster:
    """A cluster with the network plugin of an image, if it has one. `backend` is flannel's on the control plane, a
    Linux node. Empty if the cluster has no flannel."""
    node = Node(_NAME, annotations=lease(backend, ADDRESS), addresses={"InternalIP": ADDRESS}, pod_cidr=_PODS)
    return Cluster(version, node if backend else None, has_hybrid_overlay=plugin == "ovn-kubernetes")


def find_missing_routes(machine: Machine, cluster: Cluster) -> Iterator[str]:
    """The routes between pods of the two nodes that one of them does not have."""
    if machine.routes.get(_PODS) != ADDRESS:
        yield f"the node has no route to {_PODS}, the pods of {_NAME}"
    # The Linux node's own flanneld sets them, by what the nodes say about themselves.
    others = find_routes(node.json() for node in cluster.nodes.values())
    for node in cluster.nodes.values():
        if others.get(node.pod_cidr) != NODE_ADDRESS:
            yield f"{_NAME} has no route to {node.pod_cidr}, the pods of {node.name}"
