"""Windows' Host Networking Service (HNS): the networks for containers, and the endpoints of the host in them."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.services import Services

SERVICE = "hns"
# The address of every model machine: in its cloud's network and metadata, and on its network card.
NODE_ADDRESS, NODE_NETWORK = "10.0.0.7", "10.0.0.0/24"
_TYPES = ("L2Bridge", "L2Tunnel", "Overlay", "NAT")


@dataclasses.dataclass(frozen=True)
class Network:
    """A network, with the addresses of its first subnet."""

    name: str
    type: str
    subnet: str
    gateway: str
    vsid: int | None = None
    """The VNI of an overlay."""


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An adapter in a network that the host itself has."""

    name: str
    network: str
    address: str


class Hns:
    """Networks and endpoints by name. They survive a restart, but not sealing."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.networks: dict[str, Network] = {}
        self.endpoints: dict[str, Endpoint] = {}

    def check_answers(self) -> None:
        """Without its service nobody can ask."""
        if not self._services.is_running(SERVICE):
            raise RefusedByWindows(f"HNS does not answer: service {SERVICE} does not run")

    def find(self, name: str) -> Network | None:
        self.check_answers()
        return self.networks.get(name)

    def create(self, network: Network) -> None:
        self.check_answers()
        if network.type not in _TYPES:
            raise RefusedByWindows(f"HNS does not know networks of the type {network.type}")
        if ipaddress.ip_address(network.gateway) not in ipaddress.ip_network(network.subnet):
            raise RefusedByWindows(f"HNS: the gateway {network.gateway} is not in {network.subnet}")
        if network.type == "Overlay" and network.vsid is None:
            raise RefusedByWindows(f"HNS: the overlay {network.name} has no VSID")
        self.networks[network.name] = network

    def attach(self, endpoint: Endpoint) -> None:
        """Give the host an endpoint in a network."""
        network = self.find(endpoint.network)
        if network is None:
            raise RefusedByWindows(f"HNS has no network {endpoint.network}")
        if ipaddress.ip_address(endpoint.address) not in ipaddress.ip_network(network.subnet):
            raise RefusedByWindows(f"HNS: {endpoint.address} is not in {network.subnet}")
        self.endpoints[endpoint.name] = endpoint

    def remove(self, name: str) -> None:
        """Remove a network, if there is one, with the endpoints of the host in it."""
        self.check_answers()
        self.networks.pop(name, None)
        self.endpoints = {key: one for key, one in self.endpoints.items() if one.network != name}

    def forget_all(self) -> None:
        """What sysprep makes of them."""
        self.networks.clear()
        self.endpoints.clear()

    def is_taken(self, address: str) -> bool:
        """Whether the host itself has this address in one of the networks."""
        gateways = {network.gateway for network in self.networks.values()}
        return address in gateways | {endpoint.address for endpoint in self.endpoints.values()}
