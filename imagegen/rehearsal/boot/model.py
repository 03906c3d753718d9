"""The types of a boot: the instance that a cloud starts from the image, what it finds around it, and its programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.messages import Host


@dataclasses.dataclass(frozen=True)
class GivenCertificate:
    """A certificate with its private key, which a machine's creator gives it from a key vault of the cloud."""

    name: str
    pfx: bytes = dataclasses.field(repr=False)
    """PKCS #12 without a password, as the cloud packs it for the machine."""
    store: str = "My"
    """The store of LocalMachine that it is for."""


@dataclasses.dataclass(frozen=True)
class Instance:
    """A machine that a cloud starts from the image, with what its creator gave it."""

    host_name: str
    """The name that the cloud gives it."""
    instance_id: str
    user_data: bytes = dataclasses.field(repr=False)
    public_keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """OpenSSH keys by the name of the key pair."""
    admin_name: str = ""
    """The administrator that the creator asked for, where the cloud has such a setting."""
    admin_password: str = dataclasses.field(default="", repr=False)
    requires_tokens: bool = False
    """Whether the cloud's metadata answers only to requests with a token."""
    certificates: Sequence[GivenCertificate] = ()
    """Where the cloud has such a setting."""


# The seconds since a machine was created, over all its starts.
Clock = Callable[[], float]


class Platform(Protocol):
    """What one booting machine finds around it: the cloud's addresses, DHCP options and drives."""

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The cloud's services, by the address at which the machine finds them with plain HTTP."""

    @property
    def dhcp_options(self) -> Mapping[int, bytes]:
        """The options that the cloud's DHCP server sends beside the usual ones."""

    @property
    def drives(self) -> Mapping[str, Mapping[str, bytes]]:
        r"""The files of the drives that the cloud attaches for this boot: `E:` -> relative path with `\\` -> bytes."""

    @property
    def restricted(self) -> Mapping[str, Sequence[int]]:
        """The addresses that containers must not reach, with their TCP ports."""

    def refusal(self) -> str | None:
        """Why the cloud takes this machine for one that failed, in the cloud's words. None if it does not."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended."""

    exit_code: int
    output: str = ""
    """Standard output and standard error."""


@dataclasses.dataclass(frozen=True)
class Process:
    """A running program. Relative paths and paths without a drive mean the current folder and its drive."""

    machine: Machine
    arguments: Sequence[str]
    folder: str = r"C:\Windows\System32"
    user: str = "SYSTEM"
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)


Program = Callable[[Process], Ended]


class UnknownCommandError(Exception):
    """The rehearsal does not know what a command does. It fails the boot, because its effect is unknown."""
