"""The service flanneld of the model machine: nssm, and flanneld.exe with what it asks of the cluster.

The sources: flannel-io/flannel at v0.28.9, main.go, pkg/subnet/kube/kube.go, pkg/backend/hostgw and vxlan for Windows,
and pkg/backend/route_network.go and route_network_windows.go.
"""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.hns import NODE_ADDRESS, Endpoint, Network
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.nssm import Nssm, NssmError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

SERVICE = "flanneld"
HOST_GW = "host-gw"
_PREFIX = "flannel.alpha.coreos.com"
# The Go program takes these paths on the drive of its folder.
_CONFIG, _ENVIRONMENT = r"C:\etc\kube-flannel\net-conf.json", r"C:\run\flannel\subnet.env"
_FLAGS = frozenset({"kube-subnet-mgr", "kubeconfig-file"})
_LEAST_VNI, _PORT = 4096, 4789


class Flanneld(Nssm):
    """The service of one machine, which reaches this cluster."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        super().__init__(machine, SERVICE)
        self._cluster = cluster

    def run(self, program: str, arguments: dict[str, str], environment: dict[str, str]) -> None:
        if b"flanneld.exe" not in self.machine.files.read(program):
            raise UnknownCommandError(f"service {SERVICE} runs {program}, of which the rehearsal has no model")
        if unknown := sorted(arguments.keys() - _FLAGS):
            raise NssmError(f"flag provided but not defined: -{unknown[0]}")
        if arguments.get("kube-subnet-mgr") != "true":
            raise NssmError("failed to create SubnetManager: etcd does not answer")
        name = environment.get("NODE_NAME", "")
        if not name:
            raise NssmError("Failed to create SubnetManager: env variables POD_NAME and POD_NAMESPACE must be set")
        try:
            network, range_ = _read_config(self.machine)
            subnet = self._lease(arguments.get("kubeconfig-file", ""), name, network["Backend"])
            _create(self.machine, network["Backend"], subnet)
            if network["Backend"]["Type"] == HOST_GW:
                self.machine.routes |= self._routes(name)
        except (ApiError, ValueError, KeyError, RefusedByWindows) as error:
            raise NssmError(f"{error}") from error
        text = f"FLANNEL_NETWORK={range_}\nFLANNEL_SUBNET={subnet[1]}/{subnet.prefixlen}\n"
        self.machine.files.make_folder(_ENVIRONMENT.rpartition("\\")[0])
        self.machine.files.write(_ENVIRONMENT, f"{text}FLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n".encode())

    def _lease(self, path: str, name: str, backend: dict[str, Any]) -> ipaddress.IPv4Network:
        """The node's range. flanneld tells the other nodes where it is by annotations."""
        access = read_kubeconfig(self.machine.files.read(path), path)
        self._client = ApiClient(self._cluster, access.server, access.authority, access.token)
        node = self._client.get(f"/api/v1/nodes/{name}")
        if not node["spec"].get("podCIDR"):
            raise ValueError(f'node "{name}" pod cidr not assigned')
        annotations = lease(backend["Type"], NODE_ADDRESS)
        self._client.patch(f"/api/v1/nodes/{name}/status", {"metadata": {"annotations": annotations}})
        return ipaddress.IPv4Network(node["spec"]["podCIDR"])

    def _routes(self, name: str) -> dict[str, str]:
        """The routes to the pods of the other nodes."""
        nodes = self._client.get("/api/v1/nodes")["items"]
        return find_routes(node for node in nodes if node["metadata"]["name"] != name)


def lease(backend: str, address: str) -> dict[str, str]:
    """What a node's flanneld writes for those of the other nodes."""
    values = {"backend-type": backend, "backend-data": "null", "public-ip": address, "kube-subnet-manager": "true"}
    return {f"{_PREFIX}/{name}": value for name, value in values.items()}


def find_routes(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The static routes that flanneld with host-gw sets, on every operating system: to the pods of each of these nodes,
    through the node's address. It ignores nodes with another backend."""
    routes = {}
    for node in nodes:
        said = node["metadata"].get("annotations", {})
        is_managed = said.get(f"{_PREFIX}/kube-subnet-manager") == "true"
        if is_managed and said.get(f"{_PREFIX}/backend-type") == HOST_GW:
            routes[node["spec"]["podCIDR"]] = said[f"{_PREFIX}/public-ip"]
    return routes


def _read_config(machine: Machine) -> tuple[dict[str, Any], ipaddress.IPv4Network]:
    config = json.loads(machine.files.read(_CONFIG).decode())
    return config, ipaddress.IPv4Network(config["Network"])


def _create(machine: Machine, backend: dict[str, Any], subnet: ipaddress.IPv4Network) -> None:
    if backend["Type"] == HOST_GW:
        name = backend.get("Name", "cbr0")
        machine.hns.create(Network(name, "L2Bridge", str(subnet), str(subnet[1])))
        machine.hns.attach(Endpoint(f"{name}_ep", name, str(subnet[2])))
        return
    if backend["Type"] != "vxlan":
        raise ValueError(f"unknown backend type: {backend['Type']}")
    vni, port = backend.get("VNI", _LEAST_VNI), backend.get("Port", _PORT)
    if vni < _LEAST_VNI:
        raise ValueError(f"VNI [{vni}] must be greater than or equal to {_LEAST_VNI} on Windows")
    if port != _PORT:
        raise ValueError(f"Port [{port}] is not supported on Windows")
    machine.hns.create(Network(backend.get("Name", f"flannel.{vni}"), "Overlay", str(subnet), str(subnet[1]), vni))
