"""The service hybrid-overlay-node of the model machine: nssm, and the program with what it asks of the cluster.

The source: ovn-kubernetes/ovn-kubernetes at 8871cd9, go-controller/hybrid-overlay (cmd/hybrid-overlay-node,
pkg/controller/ho_node_windows.go). That it needs Hyper-V's switch is row N13 of docs/reality.md.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.hns import Network
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.windows import HYPER_V_SERVICE
from imagegen.rehearsal.node.api_server import HYBRID_OVERLAY_SUBNET
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.nssm import Nssm, NssmError

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

SERVICE = "hybrid-overlay-node"
_FLAGS = frozenset({"node", "k8s-kubeconfig", "hybrid-overlay-vxlan-port"})
_BASE = Network("BaseOVNKubernetesHybridOverlayNetwork", "Overlay", "100.64.0.0/30", "100.64.0.2", 4098)
_NAME, _VNI = "OVNKubernetesHybridOverlayNetwork", 4097
_GATEWAY_MAC = "k8s.ovn.org/hybrid-overlay-distributed-router-gateway-mac"


class HybridOverlay(Nssm):
    """The service of one machine, which reaches this cluster."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        super().__init__(machine, SERVICE)
        self._cluster = cluster

    def run(self, program: str, arguments: dict[str, str], _environment: dict[str, str]) -> None:
        if b"hybrid-overlay-node.exe" not in self.machine.files.read(program):
            raise UnknownCommandError(f"service {SERVICE} runs {program}, of which the rehearsal has no model")
        if unknown := sorted(arguments.keys() - _FLAGS):
            raise NssmError(f"flag provided but not defined: -{unknown[0]}")
        name, path = arguments.get("node", ""), arguments.get("k8s-kubeconfig", "")
        if not name:
            raise NssmError("missing node name; use the 'node' flag to provide one")
        if not self.machine.services.is_running(HYPER_V_SERVICE):
            raise NssmError("unable to create the base overlay network: there is no switch of Hyper-V")
        try:
            access = read_kubeconfig(self.machine.files.read(path), path)
            client = ApiClient(self._cluster, access.server, access.authority, access.token)
            node = client.get(f"/api/v1/nodes/{name}")
            self._create(ipaddress.IPv4Network(node["metadata"]["annotations"].get(HYBRID_OVERLAY_SUBNET, "")))
            annotations = {_GATEWAY_MAC: "00:15:5d:00:00:01"}
            client.patch(f"/api/v1/nodes/{name}/status", {"metadata": {"annotations": annotations}})
        except (ApiError, ValueError, RefusedByWindows) as error:
            raise NssmError(f"failed to initialize node: {error}") from error

    def _create(self, subnet: ipaddress.IPv4Network) -> None:
        """The first network keeps its switch over restarts; that of the pods is made anew."""
        self.machine.hns.create(_BASE)
        self.machine.hns.remove(_NAME)
        self.machine.hns.create(Network(_NAME, "Overlay", str(subnet), str(subnet[1]), _VNI))
