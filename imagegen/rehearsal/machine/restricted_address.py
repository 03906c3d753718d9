"""Does what first-boot.ps1 does for an address of the cloud that only some accounts may use: a group, and a rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.access import EVERYONE, SYSTEM
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.generalise import SETUP_SCRIPTS
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.windows import Machine

FILE = SETUP_SCRIPTS + r"\restricted-address.json"


def restrict_address(machine: Machine) -> Iterator[str]:
    """Make the group and the rule of the file, if there is one. A reason for each account that was not added."""
    if not machine.files.is_file(FILE):
        return
    wanted = json.loads(machine.files.read(FILE))
    accounts, name = machine.accounts, wanted["group"]
    group = accounts.group(name) or accounts.add_group(name)
    for member in wanted["members"]:
        user = accounts.user(member)
        if user is None:
            yield f"account {member} could not be added to group {name}: it does not exist"
        elif user.number not in group.members:
            accounts.add_member(name, member)
    if not machine.services.is_running("mpssvc"):
        raise RefusedByWindows("the firewall does not answer: service mpssvc is not running")
    if machine.firewall.rule(wanted["rule"]):
        machine.firewall.remove(wanted["rule"])
    machine.firewall.add(
        Rule(
            name=wanted["rule"],
            display_name=f"Only SYSTEM and {name} can use {wanted['address']}",
            direction="out",
            action="block",
            protocol="TCP",
            port=",".join(wanted["ports"]),
            remote_address=wanted["address"],
            local_user=f"O:LSD:(D;;CC;;;{SYSTEM})(D;;CC;;;{group.sid})(A;;CC;;;{EVERYONE})",
        )
    )
