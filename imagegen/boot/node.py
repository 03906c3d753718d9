"""A machine that was started from an image, as its checks read it.

A rehearsal answers from its model machine, and whoever starts a real instance answers by commands.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.settle.spec import Spec


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is wrong."""

    text: str
    row: str = ""
    """The row of docs/reality.md that explains it."""


@dataclasses.dataclass(frozen=True)
class Access:
    """An entry that gives somebody rights on a file or folder, also an inherited one."""

    path: str
    sid: str
    rights: str
    """Windows' own word for all of them: `Read`, `ReadAndExecute`, `Write`, `Modify`, `FullControl` or another one."""


@dataclasses.dataclass(frozen=True)
class Service:
    """A service of Windows."""

    command: str
    parameters: str
    """The arguments of the program that nssm starts for it. Empty without nssm."""
    is_automatic: bool
    is_running: bool
    failure: str
    """Why Windows cannot start it. Empty if nothing is known."""


@dataclasses.dataclass(frozen=True)
class Given:
    """What the creator of the machine gave it, and what the cloud made of it."""

    host_name: str
    has_keys: bool
    """Whether it has a key pair."""
    user_data: bytes
    secrets: Sequence[str]
    """Those in the user data."""
    keys: Sequence[bytes]
    """Pieces of the private keys that the cloud gave it."""
    wants_report: bool
    """Whether the cloud takes a machine for ready only when the machine reports that."""
    refusal: str
    """Why the cloud takes the machine for one that failed, in its words. Empty if it does not."""
    unanswered: Sequence[str]
    """The cloud's reasons for requests that it did not answer."""


@dataclasses.dataclass(frozen=True)
class FirstBoot:
    """What ran up to the end of the first boot."""

    setup_failure: Finding | None
    """Why Windows Setup did not end."""
    ran_complete_script: bool
    """Whether Setup found and ran SetupComplete.cmd."""
    version: str
    """Of cloudbase-init. Empty if it did not run."""
    started_early: bool
    """Whether it was started before Windows Setup had ended."""
    is_done: bool
    """Whether it ended, and asks for no further restart."""
    crash: str
    """The error that ended it, or why it could not start. Empty if there was none."""
    restarts_forever: bool
    log: str
    """Its log of this boot."""
    scripts_of_agents: Sequence[str]
    """The scripts in the user data that the cloud's own agents ran, by their tag."""
    joins: int
    """How often kubeadm ran."""
    join_failure: str
    """What it said last when it failed. Empty if it did not."""


@dataclasses.dataclass(frozen=True)
class SecondBoot:
    """What a second boot did."""

    ran_user_data: bool
    commands: Sequence[str]
    """The commands of the user data that it ran, as far as they are known."""
    changed: Sequence[str]
    """What it changed that it must not change."""


@dataclasses.dataclass(frozen=True)
class Updates:
    """The updates that Windows has, and those that it is offered."""

    installed: frozenset[str]
    """The KBs."""
    revision: int
    offered: Sequence[str]
    waits_for_restart: bool
    proxy: str
    """The proxy of WinHTTP. Empty if it has none."""


class Node(Protocol):
    """The machine after its second boot. A path or a key that does not exist has no content."""

    spec: Spec
    """The config of its image."""
    given: Given
    first: FirstBoot
    second: SecondBoot
    nodes: Mapping[str, str]
    """The nodes that registered with the cluster: the address that kubelet was told, by the name."""
    addresses: Sequence[str]
    """Those of the machine's network cards."""
    consoles: Mapping[str, bytes]
    """What was written to each serial port."""

    @property
    def refused(self) -> Mapping[str, str]:
        """The scripts that PowerShell refused, with the reasons."""

    @property
    def host_name(self) -> str: ...

    def read(self, path: str) -> bytes | None: ...

    def below(self, folder: str) -> Sequence[str]:
        """The files in a folder, and in all folders in it."""

    def access(self, path: str) -> Iterator[Access]:
        """The rights on a file or folder, and on everything in it."""

    def value(self, key: str, name: str) -> object:
        """A value of the registry; None if there is none."""

    def subkeys(self, key: str) -> Sequence[str]: ...

    def service(self, name: str) -> Service | None: ...

    def lets_in(self, port: int) -> bool:
        """Whether the firewall lets others connect to a TCP port."""

    def has_feature(self, name: str) -> bool: ...

    def runs_hypervisor(self) -> bool: ...

    def ports(self, protocol: str) -> frozenset[int]:
        """The ports that a program can get that asks for any port."""

    def unscanned(self) -> frozenset[str] | None:
        """The programs whose files Defender does not scan, in lower case. None if Defender does not run."""

    def updates(self) -> Updates: ...

    def sandbox_fault(self) -> str:
        """Why the container runtime starts no sandbox while no registry can be reached. Empty if it does."""

    def image_fault(self, name: str) -> str:
        """The same of a container of an image."""

    def image_digest(self, name: str) -> str:
        """The digest of a container image on the disk. Empty if it is not there."""

    def was_in_image(self, path: str) -> bool:
        """Whether the image already had a file."""
