"""What a machine that EC2 starts from the image finds around it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import Instance
from imagegen.rehearsal.clouds.aws.metadata import ADDRESS, InstanceMetadata
from imagegen.rehearsal.machine.address import NODE_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.boot.model import Clock
    from imagegen.rehearsal.network.messages import Host

_INTERFACE_MTU = 26
_KEY_PAIR = "operators"
# Nobody has the private key.
_PUBLIC_KEY = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC0pvh4rw72m5S/doXyvZZ/35GSRN9eHKF1rQ/tyH412oMxrjtGcAl6bcnRNI1/HTdiswnOo/ZJuM"
    "FGJpuxSFd+jPvh0wTYDgfyzXdP4+ktSUfJOxEryQd7CUle7gcl4Nl37Ifiwrbo8wP9TeDyqIoWn4V7SUTfs6sG0e94FZH6WnZQLDogHHYTvGz+j7OD"
    "h8BNoNh24D6j7zUIH9rIgOwb4aPMCjejQX6vQyUrZGfpJitiMgNwwEogQ7msS5Ki5Nnq+rIiL9ylOlow7cZihg9vO7jMHqlqmmwUoxT6onb64pddxX"
    f"eScLR/eMkC1WoqAG7bZvCxuug7xyjQehyeWg6l {_KEY_PAIR}"
)


def make_instance(user_data: bytes) -> Instance:
    """An instance with a key pair that takes metadata requests without a token."""
    return Instance(
        host_name=f"ip-{NODE_ADDRESS.replace('.', '-')}.ec2.internal",
        instance_id="i-0123456789abcdef0",
        user_data=user_data,
        public_keys={_KEY_PAIR: _PUBLIC_KEY},
    )


class Ec2Platform:
    """The instance's metadata, and EC2's DHCP server, which offers jumbo frames.

    EC2 asks for no report. It takes an instance for a good one as soon as its network answers.
    """

    def __init__(self, instance: Instance, clock: Clock) -> None:
        self.hosts: Mapping[str, Host] = {ADDRESS: InstanceMetadata(instance, clock)}
        self.dhcp_options: Mapping[int, bytes] = {_INTERFACE_MTU: struct.pack("!H", 9001)}
        self.drives: Mapping[str, Mapping[str, bytes]] = {}
        self.restricted: Mapping[str, Sequence[int]] = {}

    def refusal(self) -> str | None:
        return None
