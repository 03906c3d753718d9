"""kube-proxy as the pods of a DaemonSet, which wins starts on the model machine.

The source: kubernetes-sigs/sig-windows-tools at v0.1.6, kubeadm/kube-proxy/kube-proxy.yml. The pod has an address of
the network of pods. Its script takes the name of that network from the newest configuration in the folder of CNI, and
asks wins to start kube-proxy, which waits for the network in HNS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.programs import split_command
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.wins import find_pipe, list_programs, read_wins_config
from imagegen.rehearsal.node.cni_plugins import start_pod
from imagegen.rehearsal.node.facts import read_version
from imagegen.rehearsal.node.pod_network import Folders, PodNetworkError, read_configuration

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

_TURN_S = 10.0
_CONFIGURATIONS = r"C:\etc\cni\net.d"
_SERVICE, _PIPE = "rancher-wins", r"\\.\pipe\rancher_wins"


class KubeProxyPods:
    """The pod of one machine."""

    def __init__(self, machine: Machine, cluster: Cluster, folder: str) -> None:
        """`folder` is the one in which the DaemonSet places kube-proxy. Empty: the cluster has no such DaemonSet."""
        self._machine, self._cluster, self._folder = machine, cluster, folder
        self.failure = ""
        """Why kube-proxy does not run. Empty if it does."""
        self.node = ""
        self.network = ""
        self.is_serving = False

    def begin(self) -> None:
        """The machine has started."""
        self.node, self.network, self.is_serving = "", "", False
        if self._folder:
            self._try()

    def _try(self) -> None:
        try:
            self.failure = self._start()
        except (PodNetworkError, RefusedByWindows) as error:
            self.failure = f"its pod does not start: {error}"
        if not self.is_serving:
            self._machine.later(_TURN_S, self._try)

    def _start(self) -> str:
        """What the pod does in one turn of its waits. Returns why kube-proxy does not run."""
        if not self._cluster.nodes:
            return "there is no node to start its pod on"
        start_pod(self._machine)
        network = read_configuration(self._machine, Folders((), _CONFIGURATIONS)).name
        program = rf"{self._folder}\kube-proxy.exe"
        self._machine.files.make_folder(self._folder)
        self._machine.files.write(program, f"MZ a stand-in for kube-proxy.exe {self._cluster.version}\n".encode())
        if refusal := self._ask_wins(program):
            return refusal
        self.node, self.network = next(iter(self._cluster.nodes)), network
        self.is_serving = self._machine.hns.find(network) is not None
        return ""

    def _ask_wins(self, program: str) -> str:
        """What wins says instead of starting the program. Empty if it starts it."""
        if not self._machine.services.is_running(_SERVICE):
            return f"nothing answers {_PIPE}"
        wins, arguments = split_command(self._machine.files, self._machine.services.command(_SERVICE))
        config = read_wins_config(self._machine.files, arguments)
        if find_pipe(config) != _PIPE:
            return f"nothing answers {_PIPE}"
        listed = list_programs(config, read_version(self._machine.files, wins))
        is_listed = listed is None or program.lower() in [one.lower() for one in listed]
        return "" if is_listed else f"wins does not start {program}"
