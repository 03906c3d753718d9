"""The network of pods on a booted node: each file of its plugin is needed, and what is spoiled fails its check."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.user_data import make_user_data
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.access import write as write_access
from imagegen.rehearsal.machine.container_store import ContainerStore
from imagegen.rehearsal.machine.hns import Network
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import DISABLED
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
CONFIGURATIONS = r"C:\etc\cni\net.d"
BRIDGE = r"C:\k\cni\10-win-bridge.conflist"
FLANNELD = r"HKLM:\SYSTEM\CurrentControlSet\Services\flanneld\Parameters"
VNET = "plugin=azure version=1.6.21"
VXLAN, HOST_GW = "plugin=flannel", "plugin=flannel mode=host-gw"
NO_SUBNET = r"open C:\run\flannel\subnet.env"
PROXY_CONFIG = r"C:\k\cni\kube-proxy-config.yaml"
UNCONFIGURED = "Network plugin returns error: cni plugin not initialized"
CALICO = "plugin=calico mode=vxlan"
CALICO_PODS = "plugin=calico"
POLICY = "plugin=azure version=1.6.21 policy=calico"
OVN = "plugin=ovn-kubernetes version=1.3.0"
WINCNI = "plugin=wincni"
# What else each of them needs.
BESIDE = {
    OVN: (
        "windows.hyper_v=tools",
        "overrides.hybrid_overlay_url=https://artifacts.example.com/hybrid-overlay-node.exe",
    ),
    CALICO: ("kube_proxy=none",),
    WINCNI: (
        *("kubernetes.version=1.22.17", "windows.release=2019", "allow_eol=true", "kube_proxy=none"),
        "runtime={containerd: null, docker: {version: 20.10.9}, fake_host_network: true}",
    ),
}
NO_OVERLAY = "network OVNKubernetesHybridOverlayNetwork is not found"
NO_NODE = "check that calico/node is running"
CALICO_PATH = r"C:\CalicoWindows"
SERVICES = r"C:\k\cni\services.txt"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Image]:
    """The captured machine of each plugin."""
    made: dict[str, Image] = {}

    def image(network: str) -> Image:
        if network not in made:
            sets = (*(f"cni.{one}" for one in network.split()), *BESIDE.get(network, ()))
            config = load_today(BASE, *sets)
            made[network] = make_image("azure", tmp_path_factory.mktemp(network), config)
        return made[network]

    return image


def remove(path: str) -> Change:
    return lambda machine: machine.files.remove(path)


def replace(path: str, old: str, new: str) -> Change:
    return lambda machine: change_text(machine, path, old, new)


def write(path: str, text: str) -> Change:
    return lambda machine: machine.files.write(path, text.encode())


def forget(value: str) -> Change:
    return lambda machine: machine.registry.remove_value(FLANNELD, value)


def forget_remote_address(machine: Machine) -> None:
    machine.registry.remove_value(r"HKLM:\SYSTEM\CurrentControlSet\Services\hns\State", "SDNRemoteArpMacAddress")


def forget_image(name: str) -> Change:
    return lambda machine: ContainerStore(machine).forget_image(name)


def change_parameters(text: str) -> Change:
    return lambda machine: machine.registry.write(FLANNELD, "AppParameters", Value("ExpandString", text))


def change_proxy(old: str, new: str) -> Change:
    def change(machine: Machine) -> None:
        command = machine.services.command("kube-proxy")
        assert old in command
        machine.services.configure("kube-proxy", "ImagePath", Value("ExpandString", command.replace(old, new)))

    return change


# What is set, the change, and what the check says. The files of the step are here one by one.
SPOILED: list[tuple[str, Change, str]] = [
    (
        "plugin=win-bridge",
        remove(r"C:\opt\cni\bin\win-bridge.exe"),
        'failed to find plugin "win-bridge" in path [C:\\opt',
    ),
    ("plugin=win-bridge", remove(r"C:\opt\cni\bin\host-local.exe"), 'failed to find plugin "host-local" in path'),
    ("plugin=win-bridge", remove(r"C:\k\cni\network.json"), "network cbr0 is not found"),
    ("plugin=win-bridge", remove(BRIDGE), UNCONFIGURED),
    ("plugin=win-bridge", remove(r"C:\k\cni\places.txt"), UNCONFIGURED),
    ("plugin=win-bridge", remove(r"C:\k\set-pod-network.ps1"), UNCONFIGURED),
    ("plugin=win-bridge", remove(r"C:\k\kubectl.exe"), UNCONFIGURED),
    ("plugin=win-bridge", write(BRIDGE, "{"), "failed to load CNI config file"),
    (
        "plugin=win-bridge",
        replace(BRIDGE, '"type": "win-bridge"', '"type": "bridge"'),
        'failed to find plugin "bridge"',
    ),
    ("plugin=win-bridge", replace(BRIDGE, '"name": "cbr0"', '"name": "cbr1"'), "network cbr1 is not found"),
    (
        "plugin=win-bridge",
        replace(BRIDGE, ', "rangeStart": "<FIRST_POD>"', ""),
        "HNS: the address 10.244.1.2 is in use",
    ),
    ("plugin=win-bridge", replace(BRIDGE, "SDNRoute", "ROUTE"), "HNS version 2 does not know the policy ROUTE"),
    (
        "plugin=win-bridge",
        replace(BRIDGE, "<NODE_NETWORK>", "<NODE_NET>"),
        "'<NODE_NET>' does not appear to be an IPv4",
    ),
    # The first file by name counts.
    (
        "plugin=win-bridge",
        write(rf"{CONFIGURATIONS}\0-nat.json", '{"name": "nat", "type": "nat"}'),
        'find plugin "nat"',
    ),
    (
        "plugin=win-bridge",
        replace(r"C:\k\cni\network.json", "L2Bridge", "NAT"),
        "network cbr0 is of unexpected type: NAT",
    ),
    (
        "plugin=win-bridge",
        replace(r"C:\Program Files\containerd\config.toml", r"C:\etc\cni\net.d", r"C:\etc\cni\other"),
        UNCONFIGURED,
    ),
    (
        "plugin=win-bridge",
        replace(r"C:\Program Files\containerd\config.toml", r"C:\opt\cni\bin", r"C:\opt\cni\other"),
        r'failed to find plugin "win-bridge" in path [C:\opt\cni\other]',
    ),
    (
        "plugin=win-bridge",
        lambda machine: machine.services.configure("hns", "Start", Value("DWord", DISABLED)),
        UNCONFIGURED,
    ),
    ("plugin=win-overlay", remove(r"C:\opt\cni\bin\win-overlay.exe"), 'failed to find plugin "win-overlay" in path'),
    ("plugin=win-overlay", remove(r"C:\opt\cni\bin\host-local.exe"), 'failed to find plugin "host-local" in path'),
    ("plugin=win-overlay", remove(r"C:\k\cni\10-win-overlay.conflist"), UNCONFIGURED),
    ("plugin=win-overlay", replace(r"C:\k\cni\network.json", "VSID", "None"), UNCONFIGURED),
    (VXLAN, remove(r"C:\opt\cni\bin\flannel.exe"), 'failed to find plugin "flannel" in path'),
    (VXLAN, remove(r"C:\opt\cni\bin\win-overlay.exe"), 'failed to find plugin "win-overlay" in path'),
    (VXLAN, remove(r"C:\opt\cni\bin\host-local.exe"), 'failed to find plugin "host-local" in path'),
    (VXLAN, remove(r"C:\k\flanneld.exe"), NO_SUBNET),
    (VXLAN, remove(r"C:\k\nssm.exe"), NO_SUBNET),
    (VXLAN, remove(r"C:\k\cni\net-conf.json"), UNCONFIGURED),
    (VXLAN, remove(r"C:\k\cni\services.txt"), NO_SUBNET),
    (VXLAN, remove(r"C:\k\cni\10-flannel.conflist"), UNCONFIGURED),
    (VXLAN, replace(r"C:\k\cni\net-conf.json", "4096", "4095"), NO_SUBNET),
    (VXLAN, replace(r"C:\k\cni\net-conf.json", '"VNI": 4096', '"VNI": 4096, "Port": 8472'), NO_SUBNET),
    (VXLAN, replace(r"C:\k\cni\net-conf.json", '"VNI": 4096', '"VNI": 4097'), "network flannel.4096 is not found"),
    (VXLAN, change_parameters("--kube-subnet-mgr"), NO_SUBNET),
    (VXLAN, change_parameters("--kube-subnet-mgr --kubeconfig-file=C:\\k\\config"), NO_SUBNET),
    (VXLAN, forget("Application"), NO_SUBNET),
    (VXLAN, lambda machine: machine.services.remove("flanneld"), NO_SUBNET),
    (VNET, remove(r"C:\opt\cni\bin\azure-vnet.exe"), 'failed to find plugin "azure-vnet" in path'),
    (VNET, remove(r"C:\opt\cni\bin\azure-vnet-ipam.exe"), 'failed to find plugin "azure-vnet-ipam" in path'),
    (VNET, remove(r"C:\k\cni\10-azure.conflist"), UNCONFIGURED),
    (VNET, forget_remote_address, "SDNRemoteArpMacAddress is not set"),
    (CALICO, remove(r"C:\opt\cni\bin\calico.exe"), 'failed to find plugin "calico" in path'),
    (CALICO, remove(r"C:\opt\cni\bin\calico-ipam.exe"), 'failed to find plugin "calico-ipam" in path'),
    (CALICO, remove(r"C:\k\cni\10-calico.conflist"), UNCONFIGURED),
    (CALICO, remove(r"C:\k\nssm.exe"), NO_NODE),
    (CALICO, remove(SERVICES), NO_NODE),
    *(
        (CALICO, remove(rf"{CALICO_PATH}\{file}"), NO_NODE)
        for file in (
            *("config.ps1", "calico-node.exe", r"node\node-service.ps1"),
            *(r"libs\calico\calico.psm1", r"libs\hns\hns.psm1"),
        )
    ),
    (CALICO, lambda machine: machine.services.remove("CalicoNode"), NO_NODE),
    (CALICO, replace(SERVICES, "CALICO_DATASTORE_TYPE=kubernetes|", ""), NO_NODE),
    (CALICO, replace(SERVICES, "calico.conf", "other.conf"), NO_NODE),
    (CALICO, replace(SERVICES, "NODENAME=<NODE_NAME>", "NODENAME=other"), NO_NODE),
    (CALICO, replace(SERVICES, "VXLAN_VNI=4096", "VXLAN_VNI=4095"), NO_NODE),
    (CALICO, replace(SERVICES, "BACKEND=vxlan", "BACKEND=none"), "network Calico is not found"),
    (CALICO, replace(SERVICES, "VXLAN_VNI=4096", "VXLAN_VNI=5000"), "HNS: the overlay Calico has the VNI 5000"),
    (CALICO, replace(r"C:\k\cni\10-calico.conflist", "SDNROUTE", "ROUTE"), "HNS does not know the policy ROUTE here"),
    (CALICO_PODS, forget_image("quay.io/calico/cni-windows:v3.31.0"), "Calico's pods: quay.io/calico/cni-windows"),
    (CALICO_PODS, forget_image("quay.io/calico/node-windows:v3.31.0"), "Calico's pods: quay.io/calico/node-windows"),
    (OVN, remove(r"C:\opt\cni\bin\win-overlay.exe"), 'failed to find plugin "win-overlay" in path'),
    (OVN, remove(r"C:\k\hybrid-overlay-node.exe"), NO_OVERLAY),
    (OVN, remove(r"C:\k\nssm.exe"), NO_OVERLAY),
    (OVN, remove(SERVICES), NO_OVERLAY),
    (OVN, lambda machine: machine.services.configure("vmms", "Start", Value("DWord", DISABLED)), NO_OVERLAY),
    (OVN, replace(SERVICES, "--node=<NODE_NAME> ", ""), NO_OVERLAY),
    (OVN, replace(SERVICES, "hybrid-overlay.conf", "other.conf"), NO_OVERLAY),
    # The cluster gives ranges by the annotation only.
    (OVN, remove(r"C:\k\cni\pod-range.txt"), UNCONFIGURED),
    (OVN, remove(r"C:\k\cni\10-ovn-kubernetes.conflist"), UNCONFIGURED),
    (WINCNI, remove(r"C:\opt\cni\bin\wincni.exe"), 'failed to find plugin "wincni" in path'),
    (WINCNI, remove(r"C:\k\cni\network.json"), "network l2bridge is not found"),
    (WINCNI, remove(r"C:\k\cni\10-wincni.conf"), UNCONFIGURED),
    (
        WINCNI,
        replace(r"C:\k\cni\10-wincni.conf", '"GW": "<ENDPOINT>"', '"GW": "<FIRST_POD>"'),
        "no endpoint 10.244.1.3",
    ),
    (HOST_GW, remove(r"C:\opt\cni\bin\win-bridge.exe"), 'failed to find plugin "win-bridge" in path'),
    (HOST_GW, remove(r"C:\k\cni\places.txt"), UNCONFIGURED),
    (HOST_GW, replace(r"C:\k\cni\places.txt", r"lib\cni\networks", r"lib\cni\other"), "is in use"),
]


@pytest.mark.parametrize(("network", "change", "reason"), SPOILED)
def test_a_spoiled_disk_has_no_pod_network(
    images: Callable[[str], Image], tmp_path: Path, network: str, change: Change, reason: str
) -> None:
    image = images(network)
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    faults = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    (fault,) = [fault for fault in faults if fault.startswith("pod-network: ")]
    assert reason in fault


def test_a_service_of_the_network_keeps_its_log(images: Callable[[str], Image], tmp_path: Path) -> None:
    image = images(VXLAN)
    machine = image.machine.copy(tmp_path / "disk")
    forget("AppStdout")(machine)
    (fault,) = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    assert fault == "services: service flanneld keeps no log"


@pytest.mark.parametrize("folder", [r"C:\run\flannel", r"C:\var\log\flannel"])
def test_folders_of_flannel_are_closed(images: Callable[[str], Image], tmp_path: Path, folder: str) -> None:
    image = images(VXLAN)
    machine = image.machine.copy(tmp_path / "disk")
    write_access(machine.files, folder, [], protected=False)
    faults = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    assert [fault for fault in faults if fault.startswith("closed-folders: ") and folder in fault]


# The check's own words, with kube-proxy as a service.
SPOILED_PROXIES: list[tuple[Change, str]] = [
    (remove(r"C:\k\kube-proxy.exe"), "kube-proxy does not run: service kube-proxy cannot be started: cannot find"),
    (remove(r"C:\k\cni\kube-proxy-config.yaml"), "nothing started its service"),
    (remove(r"C:\k\cni\services.txt"), "nothing started its service"),
    (lambda machine: machine.services.remove("kube-proxy"), "nothing started its service"),
    (replace(PROXY_CONFIG, "  sourceVip: '<ENDPOINT>'\n", ""), "source-vip flag not set"),
    (replace(PROXY_CONFIG, "  networkName: 'vxlan0'\n", ""), "network-flag not initialized"),
    (replace(PROXY_CONFIG, "vxlan0", "vxlan1"), "waits for the network vxlan1, which does not exist"),
    (replace(PROXY_CONFIG, "kube-proxy.conf", "other.conf"), "failed to run Kube-Proxy: "),
    (replace(PROXY_CONFIG, "'<NODE_NAME>'", "other"), 'nodes "other" not found'),
    (replace(PROXY_CONFIG, "  WinDSR: true", "  WinDSR: false"), "WinDSR feature gate not enabled"),
    (replace(PROXY_CONFIG, "  WinDSR: true", "  WinDsr: true"), "unrecognized feature gate: WinDsr"),
    (change_proxy(" --windows-service", ""), "did not answer the service manager in time (error 1053)"),
    (change_proxy("kube-proxy-config.yaml", "other.yaml"), "failed complete: "),
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Image:
    asked = ("cni.plugin=win-overlay", "kube_proxy=service", "kubernetes.version=1.32.13", "allow_eol=true")
    return make_image(
        "aws", tmp_path_factory.mktemp("proxy"), load_today(BASE, *asked, "runtime.containerd.version=1.7.35")
    )


@pytest.mark.parametrize(("change", "reason"), SPOILED_PROXIES)
def test_a_spoiled_disk_has_no_kube_proxy(proxy: Image, tmp_path: Path, change: Change, reason: str) -> None:
    machine = proxy.machine.copy(tmp_path / "disk")
    change(machine)
    faults = boot_image(dataclasses.replace(proxy, machine=machine), Runner(tmp_path, os.environ)).faults
    (fault,) = [fault for fault in faults if fault.startswith("kube-proxy: ")]
    assert reason in fault


def test_kube_proxy_is_at_work_after_its_network(proxy: Image, tmp_path: Path) -> None:
    booted = boot_image(proxy, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert "kube-proxy runs for this node, as soon as the network of pods exists" in booted.lines
    written = booted.machine.files.read(r"C:\etc\kubernetes\kube-proxy-config.yaml").decode()
    assert "sourceVip: '10.244.1.2'" in written


def test_before_the_script_runs_a_node_is_not_ready(images: Callable[[str], Image], tmp_path: Path) -> None:
    """The image has no configuration that a runtime could read."""
    image = images("plugin=win-bridge")
    assert image.machine.files.names(CONFIGURATIONS) == []
    booted = boot_image(dataclasses.replace(image, sets_network=""), Runner(tmp_path, os.environ))
    (fault,) = booted.faults
    assert fault.startswith("pod-network: the node is not ready: container runtime network not ready")
    assert booted.machine.hns.networks == {}


def test_the_node_has_its_part_of_the_network(images: Callable[[str], Image], tmp_path: Path) -> None:
    booted = boot_image(images("plugin=win-overlay"), Runner(tmp_path, os.environ))
    assert booted.faults == []
    (network,) = booted.machine.hns.networks.values()
    assert (network.name, network.type, network.subnet, network.vsid) == ("vxlan0", "Overlay", "10.244.1.0/24", 4096)
    assert "the node is ready, and a pod gets an address" in booted.lines


# The check's own words, where Calico only enforces policies.
SPOILED_POLICIES: list[tuple[Change, str]] = [
    (remove(rf"{CALICO_PATH}\felix\felix-service.ps1"), rf"cannot find {CALICO_PATH}\felix\felix-service.ps1"),
    (remove(rf"{CALICO_PATH}\node\node-service.ps1"), "Waiting for Calico initialisation to finish..."),
    (lambda machine: machine.services.remove("CalicoFelix"), "nothing started the service CalicoFelix"),
    (
        replace(SERVICES, "KUBE_NETWORK=azure.*", "KUBE_NETWORK=Calico.*"),
        "in networks named Calico.*, and the pods are",
    ),
]


@pytest.mark.parametrize(("change", "reason"), SPOILED_POLICIES)
def test_a_spoiled_disk_enforces_no_policies(
    images: Callable[[str], Image], tmp_path: Path, change: Change, reason: str
) -> None:
    image = images(POLICY)
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    faults = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    (fault,) = [fault for fault in faults if fault.startswith("network-policies: ")]
    assert reason in fault


@pytest.mark.parametrize(
    ("network", "service"),
    [(POLICY, "CalicoNode"), (POLICY, "CalicoFelix"), (OVN, "hybrid-overlay-node")],
)
def test_every_service_of_the_network_keeps_its_log(
    images: Callable[[str], Image], tmp_path: Path, network: str, service: str
) -> None:
    image = images(network)
    machine = image.machine.copy(tmp_path / "disk")
    machine.registry.remove_value(rf"{machine.services.key(service)}\Parameters", "AppStdout")
    (fault,) = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    assert fault == f"services: service {service} keeps no log"


# What wins runs for the pods of kube-proxy's DaemonSet.
WINS_CONFIG = r"C:\etc\rancher\wins\config"
SPOILED_PODS: list[tuple[Change, str]] = [
    (lambda machine: machine.services.remove("rancher-wins"), r"nothing answers \\.\pipe\rancher_wins"),
    (replace(WINS_CONFIG, "kube-proxy.exe", "other.exe"), r"wins does not start C:\k\kube-proxy\kube-proxy.exe"),
    (remove(r"C:\k\cni\network.json"), "its pod does not start: network vxlan0 is not found"),
]


@pytest.mark.parametrize(("change", "reason"), SPOILED_PODS)
def test_a_spoiled_disk_has_no_kube_proxy_by_wins(wins: Image, tmp_path: Path, change: Change, reason: str) -> None:
    machine = wins.machine.copy(tmp_path / "disk")
    change(machine)
    faults = boot_image(dataclasses.replace(wins, machine=machine), Runner(tmp_path, os.environ)).faults
    (fault,) = [fault for fault in faults if fault.startswith("kube-proxy: ")]
    assert reason in fault


@pytest.fixture(scope="module")
def wins(tmp_path_factory: pytest.TempPathFactory) -> Image:
    node = ("kubernetes.version=1.22.17", "windows.release=2019", "runtime.containerd.version=1.6.39", "allow_eol=true")
    asked = ("cni.plugin=win-overlay", "kube_proxy=wins", "wins={version: 0.4.11}")
    return make_image("aws", tmp_path_factory.mktemp("wins"), load_today(BASE, *node, *asked))


@pytest.mark.parametrize(("address", "reason"), [("10.244.1.2", ""), ("", "source-vip flag not set")])
def test_kube_proxy_in_an_overlay_of_the_cluster(tmp_path: Path, address: str, reason: str) -> None:
    """The image does not know this network, so user data says its name and kube-proxy's own address in it."""
    image = make_image("aws", tmp_path / "image", load_today(BASE, "kube_proxy=service"))
    image.machine.hns.networks["of-the-cluster"] = Network(
        "of-the-cluster", "Overlay", "10.244.1.0/24", "10.244.1.1", 4096
    )
    faults = boot_image(
        image, Runner(tmp_path, os.environ), lambda join: make_user_data(dataclasses.replace(join, source_vip=address))
    ).faults
    assert faults == ([f"kube-proxy: kube-proxy does not run: {reason}"] if reason else [])
