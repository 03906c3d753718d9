"""The cluster that a booted machine joins, and kubeadm and kubelet on the model machine.

Cluster(version=...)                    the API server, with the CA, token and nodes of a cluster; a context manager
Kubelet(machine, cluster)               makes the machine's service kubelet run
make_kubeadm(cluster)                   the program kubeadm.exe
"""

from __future__ import annotations

from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.kubeadm import make_kubeadm
from imagegen.rehearsal.node.kubelet import Kubelet
from imagegen.rehearsal.node.objects import Node

__all__ = ["Cluster", "Kubelet", "Node", "make_kubeadm"]
