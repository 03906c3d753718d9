"""The network plugin of Azure's virtual networks on the model machine.

The sources: Azure/azure-container-networking (cni/network, cni/ipam) and Azure/AgentBaker (azurecnifunc.ps1).
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.hns import NODE_ADDRESS, NODE_NETWORK, Network
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node import cni_plugins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine

_HNS_STATE = r"HKLM:\SYSTEM\CurrentControlSet\Services\hns\State"


def _vnet(machine: Machine, folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """Creates its network itself, on the node's own one, and takes the addresses of the node's adapter."""
    if machine.registry.text(_HNS_STATE, "SDNRemoteArpMacAddress") is None:
        raise RefusedByWindows("HNS answers no ARP request of the virtual network: SDNRemoteArpMacAddress is not set")
    if machine.hns.find(config["name"]) is None:
        gateway = str(ipaddress.IPv4Network(NODE_NETWORK)[1])
        machine.hns.create(Network(config["name"], "L2Bridge", NODE_NETWORK, gateway))
    for policy in config.get("AdditionalArgs", ()):
        value = policy["Value"]
        ranges = [*value.get("ExceptionList", ()), value.get("DestinationPrefix"), value.get("RemoteAddresses")]
        for one in filter(None, ranges):
            ipaddress.ip_network(one)
    return cni_plugins.run_plugin(machine, folders, {**config, "type": config["ipam"]["type"]})


def _vnet_ipam(_machine: Machine, _folders: Sequence[str], _config: Mapping[str, Any]) -> str:
    """The first address of the node's adapter besides its own."""
    return str(ipaddress.IPv4Address(NODE_ADDRESS) + 1)


PLUGINS = {"azure-vnet": _vnet, "azure-vnet-ipam": _vnet_ipam}
