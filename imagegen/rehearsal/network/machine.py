"""The identity of a machine that a cloud started: its address, its WinRM credentials and its certificate."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WINRM_PORT = 5986
# The operator's public address: checkip returns it, and firewall rules are compared with it.
OPERATOR_ADDRESS = "203.0.113.7"


@dataclasses.dataclass(frozen=True)
class ListenerCertificate:
    """The certificate, in PEM, that the cloud has installed for the machine's WinRM listener."""

    certificate: bytes
    key: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class MachineIdentity:
    """A machine that a cloud started."""

    cloud: str
    name: str
    address: str
    image: str
    username: str
    password: str = dataclasses.field(repr=False)
    user_data: bytes = b""
    certificate: ListenerCertificate | None = None


# Called when a machine starts. Returns the local port of its guest, or None if the guest is attached later.
OnMachine = Callable[[MachineIdentity], int | None]


def operator_address(cidrs: Sequence[str]) -> str:
    """The public address of Packer's machine: one that the config allows, if it has allowed ranges."""
    networks = [ipaddress.ip_network(cidr, strict=False) for cidr in cidrs]
    if not networks or any(ipaddress.ip_address(OPERATOR_ADDRESS) in network for network in networks):
        return OPERATOR_ADDRESS
    return str(networks[0][0])
