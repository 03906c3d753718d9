"""Does on a node that came up what administrators do later: look for drift, and take it out of its cluster and back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot.upkeep import Rejoin, Upgrade
from imagegen.rehearsal.boot.drift import check, look_for_drift
from imagegen.rehearsal.boot.user_data import CONFIG, network_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from imagegen.boot.facts import NodeFacts
    from imagegen.rehearsal.boot.drift import Bundle
    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.boot.node import Node
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

# How long kubelet's service and the network of pods may take to come up, with restarts after failures.
NODE_S: Final = 300.0
_POWERSHELL: Final = ("powershell.exe", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File")
_OF_PODS: Final = ("L2Bridge", "L2Tunnel", "Overlay")
_FOLDER: Final = r"C:\k"
UPGRADE: Final = (
    r"Copy-Item C:\k\new\kubeadm.exe C:\k\kubeadm.exe",
    r"C:\k\kubeadm.exe upgrade node",
    "Stop-Service kubelet",
    r"Copy-Item C:\k\new\kubelet.exe C:\k\kubelet.exe",
    "Start-Service kubelet",
)
"""The commands of docs/operator-guide.md, on drive C."""
# What kubeadm and kubelet write when a node joins.
_OF_CLUSTER: Final = (("etc_kubernetes", "kubelet.conf"), ("kubelet", "config.yaml"), ("kubelet", "pki"))


@dataclasses.dataclass(frozen=True)
class Upkeep:
    """A node that came up, and what is around it."""

    image: Image
    node: Node
    cluster: Cluster
    begin_pods: Callable[[], object]
    """Starts the pods of the cluster's DaemonSets, when the node has joined."""
    is_up: Callable[[], bool]

    def look_after(self, found: NodeFacts) -> Mapping[str, object]:
        """The facts of these commands. Without the bundle that made the image there are none."""
        if self.image.bundle is None:
            return {}
        drift = look_for_drift(self.node.machine, self.image.bundle, self.image.layout["kubernetes"])
        if found.join.failure or not found.kubelet.is_running:
            return {"drift": drift}
        rejoin = self._rejoin(self.image.bundle, frozenset(drift.found))
        return {"drift": drift, "rejoin": rejoin} | ({"upgrade": self._upgrade()} if rejoin.is_up else {})

    def _rejoin(self, bundle: Bundle, before: frozenset[str]) -> Rejoin:
        """`before` is what had drifted before."""
        image, node, cluster = self.image, self.node, self.cluster
        socket = ("-RuntimeEndpoint", image.docker.socket) if image.docker else ()
        failure = node.run((*_POWERSHELL, rf"{image.layout['kubernetes']}\reset-node.ps1", *socket))
        left = tuple(_find_left(node.machine, image))
        # As `kubectl delete node` does.
        cluster.nodes.clear()
        failure = failure or node.run(("kubeadm", "join", "--config", CONFIG))
        self.begin_pods()
        if image.sets_network:
            failure = failure or node.run((*_POWERSHELL, *network_call(image.sets_network, image.network_of_cluster)))
        node.pass_time(self.is_up, NODE_S)
        drifted = [f"{name}: {why}" for name, why in check(node.machine, bundle)[1].items()]
        return Rejoin(
            failure=failure,
            left=left,
            is_up=self.is_up(),
            nodes=tuple(cluster.nodes),
            drifted=tuple(one for one in drifted if one not in before),
        )

    def _upgrade(self) -> Upgrade:
        """The commands of the operator guide, with the next patch release."""
        folder, files = self.image.layout["kubernetes"], self.node.machine.files
        old = self.image.kubernetes.split("-")[0]
        major, minor, patch = old.split(".")
        new = f"{major}.{minor}.{int(patch) + 1}"
        files.make_folder(rf"{folder}\new")
        for program in ("kubeadm.exe", "kubelet.exe"):
            data = files.read(rf"{folder}\{program}").replace(old.encode(), new.encode())
            files.write(rf"{folder}\new\{program}", data)
        failure = ""
        for command in UPGRADE:
            words = ("powershell.exe", "-NoProfile", "-Command", command.replace(_FOLDER, folder))
            failure = failure or self.node.run(words)
        self.node.pass_time(self.is_up, NODE_S)
        nodes = self.cluster.nodes.values() if self.is_up() else ()
        return Upgrade(
            failure=failure, version="".join(one.kubelet_version.removeprefix("v") for one in nodes), wanted=new
        )


def _find_left(machine: Machine, image: Image) -> Iterator[str]:
    paths = [rf"{image.layout[folder]}\{name}" for folder, name in _OF_CLUSTER]
    configurations = image.layout["cni_config"]
    if machine.files.is_folder(configurations):
        paths += [rf"{configurations}\{name}" for name in machine.files.names(configurations)]
    yield from (path for path in paths if machine.files.exists(path))
    yield from (f"network {one.name}" for one in machine.hns.networks.values() if one.type in _OF_PODS)
