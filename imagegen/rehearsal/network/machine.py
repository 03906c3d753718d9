"""A machine that a cloud of the rehearsal started: who may come in, with which password, and by which door."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

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


class Cloud(Protocol):
    """What the network asks of a cloud about an address."""

    def closed_because(self, address: str) -> str | None:
        """Why the WinRM port of the machine with this address is shut: "" when open, None when it is nobody's here."""
