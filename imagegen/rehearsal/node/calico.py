"""Calico on the model machine: its two services, or the HostProcess pods of its DaemonSet.

The source: projectcalico/calico at v3.31.0, node/windows-packaging/CalicoWindows (config.ps1, node-service.ps1,
felix-service.ps1), node/pkg/lifecycle/startup/startup_windows.go and cni-plugin/pkg/install/install_windows.go.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import TYPE_CHECKING

from imagegen.catalog.facts import minor as minor_of
from imagegen.catalog.facts import numbers, table
from imagegen.rehearsal.boot.images import find_refusal
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.hns import NODE_ADDRESS, Endpoint, Network
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.node.api_server import SERVICE_RANGE
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.nssm import Nssm, NssmError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

NODE_SERVICE, FELIX_SERVICE = "CalicoNode", "CalicoFelix"
_STATE = r"HKLM:\SOFTWARE\Tigera\Calico"
_NETWORK, _EXTERNAL = "Calico", Network("External", "Overlay", "192.168.255.0/30", "192.168.255.1", 9999)
_LEAST_VNI = 4096
_TURN_S = 5.0
# The defaults of the operator's Installation resource and of the plugin's installation.
_PROGRAMS, _CONFIGURATIONS = r"C:\opt\cni\bin", r"C:\etc\cni\net.d"
_KUBECONFIG, _NODE_NAME = rf"{_CONFIGURATIONS}\calico-kubeconfig", r"C:\var\lib\calico\nodename"
_GATE = "WindowsHostProcessContainers=true"


class _CalicoService(Nssm):
    """A script of Calico's, which nssm starts in Calico's folder."""

    script = ""
    needs: tuple[str, ...] = ()

    def __init__(self, machine: Machine, cluster: Cluster, service: str) -> None:
        super().__init__(machine, service)
        self._cluster = cluster

    def run(self, program: str, arguments: dict[str, str], environment: dict[str, str]) -> None:
        parameters = rf"{self.machine.services.key(self.service)}\Parameters"
        folder = self.machine.registry.text(parameters, "AppDirectory") or ""
        if not program.lower().endswith("\\powershell.exe") or [*arguments][-1:] != [rf"{folder}\{self.script}"]:
            raise UnknownCommandError(f"service {self.service} runs {program}, of which the rehearsal has no model")
        paths = (self.script, "config.ps1", r"libs\calico\calico.psm1", "calico-node.exe", *self.needs)
        for path in paths:
            if not self.machine.files.is_file(rf"{folder}\{path}"):
                raise NssmError(rf"cannot find {folder}\{path}")
        try:
            for path in paths:
                check_script(self.machine, rf"{folder}\{path}")
            self.work(folder, environment)
        except (ApiError, ValueError, RefusedByWindows) as error:
            raise NssmError(str(error)) from error

    def work(self, folder: str, environment: Mapping[str, str], /) -> None:
        """What the script does before it only waits."""
        raise NotImplementedError

    def connect(self, environment: Mapping[str, str]) -> tuple[ApiClient, str]:
        """The datastore, and the name of the node in it."""
        if environment.get("CALICO_DATASTORE_TYPE") != "kubernetes":
            raise NssmError("the datastore type is not kubernetes")
        path = environment.get("KUBECONFIG", "")
        access = read_kubeconfig(self.machine.files.read(path), path)
        client = ApiClient(self._cluster, access.server, access.authority, access.token)
        name = environment.get("NODENAME") or self.machine.host_name.lower()
        client.get(f"/api/v1/nodes/{name}")
        return client, name


class CalicoNode(_CalicoService):
    """Makes the node's network, if Calico connects pods, and tells the cluster of the node."""

    script, needs = r"node\node-service.ps1", (r"libs\hns\hns.psm1",)

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        super().__init__(machine, cluster, NODE_SERVICE)

    def work(self, folder: str, environment: Mapping[str, str]) -> None:
        backend, started = environment.get("CALICO_NETWORKING_BACKEND", "vxlan"), str(self.machine.boot_count)
        if backend not in ("vxlan", "none"):
            raise UnknownCommandError(f"the rehearsal does not know Calico's backend {backend}")
        if backend == "vxlan":
            if self.machine.registry.text(_STATE, "LastBootTime") != started:
                for network in [one for one in self.machine.hns.networks.values() if one.type != "NAT"]:
                    self.machine.hns.remove(network.name)
            self.machine.hns.create(_EXTERNAL)
        self.machine.registry.make_key(_STATE)
        self.machine.registry.write(_STATE, "LastBootTime", Value("String", started))
        if not self.machine.services.is_serving("kubelet"):
            raise NssmError("Kubelet not running, waiting for Kubelet to start...")
        client, name = self.connect(environment)
        if backend == "vxlan":
            _make_overlay(self.machine, client, int(environment.get("VXLAN_VNI", "4096")))
        annotations = {"projectcalico.org/IPv4Address": f"{NODE_ADDRESS}/24"}
        client.patch(f"/api/v1/nodes/{name}/status", {"metadata": {"annotations": annotations}})
        self.machine.files.write(rf"{folder}\nodename", name.encode())


class CalicoFelix(_CalicoService):
    """Enforces policies on the endpoints in the networks whose names match a pattern."""

    script = r"felix\felix-service.ps1"

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        super().__init__(machine, cluster, FELIX_SERVICE)
        self.networks = ""
        """The pattern. Empty before it works."""

    def work(self, _folder: str, environment: Mapping[str, str]) -> None:
        if self.machine.registry.text(_STATE, "LastBootTime") != str(self.machine.boot_count):
            raise NssmError("Waiting for Calico initialisation to finish...")
        self.connect(environment)
        self.networks = environment.get("KUBE_NETWORK", "Calico.*")

    def end(self) -> None:
        super().end()
        self.networks = ""

    def enforces_in(self, name: str) -> bool:
        return bool(self.networks and re.match(self.networks, name))


def _make_overlay(machine: Machine, client: ApiClient, vni: int) -> None:
    """The network of the node's block of addresses, with the endpoint of the host."""
    if vni < _LEAST_VNI:
        raise ValueError("Windows does not support VXLANVNI < 4096.")
    (pool,) = client.get("/apis/crd.projectcalico.org/v1/ippools")["items"]
    block = next(ipaddress.IPv4Network(pool["spec"]["cidr"]).subnets(new_prefix=pool["spec"]["blockSize"]))
    machine.hns.create(Network(_NETWORK, "Overlay", str(block), str(block[1]), vni))
    machine.hns.attach(Endpoint(f"{_NETWORK}_ep", _NETWORK, str(block[2])))


class CalicoPods:
    """The DaemonSet of Calico's operator, in a cluster that has it: HostProcess pods on each node."""

    def __init__(
        self, machine: Machine, cluster: Cluster, version: str, read_arguments: Callable[[], Sequence[str]]
    ) -> None:
        """`version` is Calico's. Empty: the cluster has none. `read_arguments` gives those of the running kubelet."""
        self._machine, self._cluster, self._version = machine, cluster, version
        self._read_arguments = read_arguments
        self.failure = ""
        """Why its pods do not run. Empty if they do, or the cluster has none."""

    def begin(self) -> None:
        """The machine has started."""
        if self._version:
            self._try()

    def _try(self) -> None:
        try:
            self.failure = self._find_lack()
            if not self.failure:
                self._work()
        except (ApiError, ValueError, RefusedByWindows) as error:
            self.failure = str(error)
        if self.failure:
            self._machine.later(_TURN_S, self._try)

    def _find_lack(self) -> str:
        arguments = self._read_arguments()
        if not arguments or not self._cluster.nodes:
            return "no kubelet runs pods"
        if numbers(minor_of(self._cluster.version)) == (1, 22) and not any(_GATE in one for one in arguments):
            return "kubelet has no HostProcess containers"
        known = table("cni")["calico"]
        registry = [host for since, host in known["images"].items() if numbers(self._version) >= numbers(since)][-1]
        refusals = (find_refusal(self._machine, f"{registry}/{n}:v{self._version}") for n in known["names"])
        return next(filter(None, refusals), "")

    def _work(self) -> None:
        """What the pods do: place the plugin and its kubeconfig, make the network, and, last, the configuration."""
        files = self._machine.files
        for name in ("calico", "calico-ipam"):
            files.make_folder(_PROGRAMS)
            files.write(rf"{_PROGRAMS}\{name}.exe", f"MZ a stand-in for {name}.exe, from Calico's pods\n".encode())
        kubeconfig = self._cluster.kubeconfig("calico")
        access = read_kubeconfig(kubeconfig, _KUBECONFIG)
        _make_overlay(
            self._machine, ApiClient(self._cluster, access.server, access.authority, access.token), _LEAST_VNI
        )
        for path, data in ((_NODE_NAME, next(iter(self._cluster.nodes)).encode()), (_KUBECONFIG, kubeconfig)):
            files.make_folder(path.rpartition("\\")[0])
            files.write(path, data)
        files.write(rf"{_CONFIGURATIONS}\10-calico.conflist", json.dumps(_CONFLIST).encode())


_CONFLIST = {
    "name": _NETWORK,
    "cniVersion": "0.3.1",
    "plugins": [
        {
            **{"type": "calico", "mode": "vxlan", "vxlan_vni": _LEAST_VNI, "datastore_type": "kubernetes"},
            **{"nodename_file": _NODE_NAME, "kubernetes": {"kubeconfig": _KUBECONFIG}},
            "ipam": {"type": "calico-ipam"},
            "policies": [
                {"value": {"Type": "OutBoundNAT", "ExceptionList": [SERVICE_RANGE]}},
                {"value": {"Type": "SDNROUTE", "DestinationPrefix": SERVICE_RANGE, "NeedEncap": True}},
            ],
        }
    ],
}
