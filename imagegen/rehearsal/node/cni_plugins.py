"""The programs of network plugins on the model machine: what each needs to connect a pod.

A program is known by the bytes on the disk, whatever its file is called. The sources: win-bridge, win-overlay and
host-local of containernetworking/plugins at v1.9.1 (plugins/main/windows, plugins/ipam/host-local), flannel of
flannel-io/cni-plugin at v1.9.1-flannel1 (flannel_windows.go), calico of projectcalico/calico at v3.31.0
(cni-plugin/pkg/dataplane/windows), and wincni of microsoft/SDN (Kubernetes/windows).
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.clouds import network_plugins
from imagegen.rehearsal.machine.docker_engine import DOCKER
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.pod_network import PodNetworkError, find_folders, read_configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imagegen.rehearsal.machine.hns import Network
    from imagegen.rehearsal.machine.windows import Machine

    Plugin = Callable[[Machine, Sequence[str], Mapping[str, Any]], str]

# imagegen.rehearsal.artifacts writes it into the stand-in of every program.
_PROGRAM = re.compile(rb"a stand-in for (?:\S*/)?([A-Za-z0-9-]+)\.exe[ ,]")
_BRIDGES, _OVERLAYS = ("L2Bridge", "L2Tunnel"), ("Overlay",)
_SUBNET_FILE = r"C:\run\flannel\subnet.env"
# host-local keeps a file for each address that it gave away.
_STORE = r"C:\var\lib\cni\networks"
_EXCEPTIONS = {1: ("ExceptionList",), 2: ("Settings", "Exceptions")}


def start_pod(machine: Machine) -> str:
    """Connect a pod, as the runtime does, and return its address."""
    folders = find_folders(machine)
    configuration = read_configuration(machine, folders)
    addresses = [run_plugin(machine, folders.programs, plugin) for plugin in configuration.plugins]
    return addresses[0]


def run_plugin(machine: Machine, folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """Start the plugin that a configuration names. Returns the address of the pod."""
    program = _find(machine, folders, config["type"])
    found = _PROGRAM.search(machine.files.read(program))
    name = found[1].decode() if found else ""
    known = {**_PLUGINS, **network_plugins()}
    if name not in known:
        raise UnknownCommandError(f"the rehearsal does not know what the network plugin {program} does")
    try:
        return known[name](machine, folders, config)
    except (ValueError, KeyError, TypeError, AttributeError, RefusedByWindows) as error:
        raise PodNetworkError(f"{name}: {error}") from error


def _find(machine: Machine, folders: Sequence[str], name: str) -> str:
    for path in (rf"{folder}\{name}{ending}" for folder in folders for ending in (".exe", "")):
        if machine.files.is_file(path):
            return path
    raise PodNetworkError(f'failed to find plugin "{name}" in path [{" ".join(folders)}]')


def _host_local(machine: Machine, _folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """The first free address of a range. The first one of the subnet is the gateway's."""
    ipam = config["ipam"]
    subnet = ipaddress.IPv4Network(ipam["subnet"])
    gateway = ipaddress.IPv4Address(ipam["gateway"]) if "gateway" in ipam else subnet[1]
    first = ipaddress.IPv4Address(ipam.get("rangeStart", str(subnet[1])))
    if first not in subnet:
        raise ValueError(f"RangeStart {first} not in network {subnet}")
    store = rf"{_STORE}\{config['name']}"
    taken = {gateway, *(ipaddress.IPv4Address(name) for name in _names(machine, store))}
    address = str(next(one for one in subnet.hosts() if one >= first and one not in taken))
    # host-local itself does not know what else has an address. HNS then refuses the endpoint.
    if machine.hns.is_taken(address):
        raise RefusedByWindows(f"HNS: the address {address} is in use")
    return address


def _names(machine: Machine, folder: str) -> list[str]:
    return machine.files.names(folder) if machine.files.is_folder(folder) else []


def _flannel(machine: Machine, folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """Calls another plugin for the range that flanneld wrote."""
    if not machine.files.is_file(_SUBNET_FILE):
        raise PodNetworkError(f"open {_SUBNET_FILE}: The system cannot find the file specified.")
    lines = machine.files.read(_SUBNET_FILE).decode().split()
    subnet = ipaddress.ip_interface(dict(line.split("=", 1) for line in lines)["FLANNEL_SUBNET"]).network
    delegate = {"type": "win-bridge", **config["delegate"], "name": config["name"]}
    return run_plugin(machine, folders, {**delegate, "ipam": {"type": "host-local", "subnet": str(subnet)}})


def _win_bridge(machine: Machine, folders: Sequence[str], config: Mapping[str, Any]) -> str:
    return _connect(machine, folders, config, _BRIDGES)


def _win_overlay(machine: Machine, folders: Sequence[str], config: Mapping[str, Any]) -> str:
    return _connect(machine, folders, config, _OVERLAYS)


def _wincni(machine: Machine, _folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """Attaches endpoints of the first version of HNS, which only Docker's containers have, and is its own IPAM."""
    if not machine.services.exists(DOCKER):
        raise RefusedByWindows("HNS: only Docker's containers have endpoints of version 1")
    subnet = ipaddress.IPv4Network(config["ipam"]["subnet"])
    gateway = config["ipam"]["routes"][0]["GW"]
    policies = [{"value": item["Value"]} for item in config["AdditionalArgs"]]
    _find_network(machine, config["name"], _BRIDGES)
    _check_policies({"apiVersion": 1, "policies": policies})
    if not machine.hns.is_taken(gateway):
        raise PodNetworkError(f"the pod reaches nothing: the host has no endpoint {gateway} in {config['name']}")
    return next(str(one) for one in subnet.hosts() if not machine.hns.is_taken(str(one)))


def _calico(machine: Machine, folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """Asks Calico's IPAM for an address of the node's block, in the network that calico-node made."""
    if not machine.files.is_file(config["nodename_file"]):
        raise PodNetworkError(f"no file {config['nodename_file']}: check that calico/node is running")
    if config["datastore_type"] != "kubernetes":
        raise PodNetworkError("no etcd endpoints specified")
    kubeconfig = config["kubernetes"]["kubeconfig"]
    read_kubeconfig(machine.files.read(kubeconfig), kubeconfig)
    if config["mode"] != "vxlan":
        raise UnknownCommandError(f"the rehearsal does not know Calico's mode {config['mode']!r}")
    network = _find_network(machine, config["name"], _OVERLAYS)
    if network.vsid != config["vxlan_vni"]:
        raise RefusedByWindows(f"HNS: the overlay {network.name} has the VNI {network.vsid}")
    route = "ROUTE" if machine.services.exists(DOCKER) else "SDNROUTE"
    for policy in config["policies"]:
        value = policy["value"]
        if value["Type"] not in ("OutBoundNAT", route):
            raise RefusedByWindows(f"HNS does not know the policy {value['Type']} here")
        for one in [*value.get("ExceptionList", ()), value.get("DestinationPrefix")]:
            ipaddress.ip_network(one or network.subnet)
    return run_plugin(machine, folders, {**config, "type": config["ipam"]["type"], "ipam": {"subnet": network.subnet}})


def _calico_ipam(machine: Machine, _folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """Windows has the first three addresses of each block."""
    subnet = ipaddress.IPv4Network(config["ipam"]["subnet"])
    return next(str(one) for one in list(subnet.hosts())[2:] if not machine.hns.is_taken(str(one)))


def _find_network(machine: Machine, name: str, types: Sequence[str]) -> Network:
    """The network of this name, which must have one of these types."""
    network = machine.hns.find(name)
    if network is None:
        raise PodNetworkError(f"network {name} is not found")
    if network.type not in types:
        raise PodNetworkError(f"network {name} is of unexpected type: {network.type}")
    return network


def _connect(machine: Machine, folders: Sequence[str], config: Mapping[str, Any], types: Sequence[str]) -> str:
    """An endpoint in the network of the configuration's name, which must exist."""
    network = _find_network(machine, config["name"], types)
    address = run_plugin(machine, folders, {**config, "type": config["ipam"]["type"]})
    if ipaddress.ip_address(address) not in ipaddress.ip_network(network.subnet):
        raise RefusedByWindows(f"HNS: {address} is not in {network.subnet}")
    # Pods of a bridge send through the second address of their range.
    gateway = str(ipaddress.ip_network(network.subnet)[2])
    if network.type in _BRIDGES and not any(one.address == gateway for one in machine.hns.endpoints.values()):
        raise PodNetworkError(f"the pod reaches nothing: the host has no endpoint {gateway} in {network.name}")
    _check_policies(config)
    return address


def _check_policies(config: Mapping[str, Any]) -> None:
    """HNS reads the policies of its own version. What it does not know has no effect, and it reads every range."""
    version = config.get("apiVersion", 1)
    for policy in config.get("policies", ()):
        value = policy["value"]
        settings = value["Settings"] if version == 2 else value
        known = ("OutBoundNAT", "SDNRoute" if version == 2 else "ROUTE")
        if version == 2 and value["Type"] == "ProviderAddress":
            ipaddress.ip_address(settings["ProviderAddress"])
            continue
        if value["Type"] not in known:
            raise RefusedByWindows(f"HNS version {version} does not know the policy {value['Type']}")
        ranges = settings[_EXCEPTIONS[version][-1]] if value["Type"] == known[0] else [settings["DestinationPrefix"]]
        for one in ranges:
            ipaddress.ip_network(one)


# By the name under which each was released.
_PLUGINS: Mapping[str, Plugin] = {
    "calico": _calico,
    "calico-ipam": _calico_ipam,
    "flannel-amd64": _flannel,
    "host-local": _host_local,
    "win-bridge": _win_bridge,
    "win-overlay": _win_overlay,
    "wincni": _wincni,
}
