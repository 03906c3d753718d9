"""A machine that a cloud of the rehearsal started: who may come in, with which password, and by which door."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WINRM_PORT = 5986
# The address from which the operator's machine is seen outside; checkip answers it, firewall rules are held against it.
OPERATOR_ADDRESS = "203.0.113.7"


@dataclasses.dataclass(frozen=True)
class ListenerCertificate:
    """The certificate that the cloud put into the machine for its WinRM listener, as PEM."""

    certificate: bytes
    key: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class MachineIdentity:
    """What a cloud knows of a machine it started."""

    cloud: str
    name: str
    address: str
    image: str
    username: str
    password: str = dataclasses.field(repr=False)
    user_data: bytes = b""
    certificate: ListenerCertificate | None = None


# Called when a machine starts; the answer is the local port of the guest that plays it, or None: attach one later.
OnMachine = Callable[[MachineIdentity], int | None]


def operator_address(cidrs: Sequence[str]) -> str:
    """Where Packer is seen to come from: somewhere that the config admits, if it admits anybody."""
    networks = [ipaddress.ip_network(cidr, strict=False) for cidr in cidrs]
    if not networks or any(ipaddress.ip_address(OPERATOR_ADDRESS) in network for network in networks):
        return OPERATOR_ADDRESS
    return str(networks[0][0])
