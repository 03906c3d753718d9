"""Does what first-boot.ps1 does for an address of the cloud that only some accounts may use: a group, and a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from imagegen.rehearsal.machine.access import EVERYONE, SYSTEM
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.seal import SETUP_SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.windows import Machine

FILE = SETUP_SCRIPTS + r"\restricted-address.json"


class _Wanted(pydantic.BaseModel):
    """What the script reads of the file. It overlooks other keys."""

    group: str
    members: list[str]
    rule: str
    address: str
    ports: list[str]


def restrict_address(machine: Machine) -> Iterator[str]:
    """Make the group and the rule of the file, if there is one. A reason for each account that was not added."""
    if not machine.files.is_file(FILE):
        return
    wanted = _read(machine)
    accounts, name = machine.accounts, wanted.group
    group = accounts.group(name) or accounts.add_group(name)
    for member in wanted.members:
        user = accounts.user(member)
        if user is None:
            yield f"account {member} could not be added to group {name}: it does not exist"
        elif user.number not in group.members:
            accounts.add_member(name, member)
    if not machine.services.is_running("mpssvc"):
        raise RefusedByWindows("the firewall does not answer: service mpssvc is not running")
    if machine.firewall.rule(wanted.rule):
        machine.firewall.remove(wanted.rule)
    machine.firewall.add(
        Rule(
            name=wanted.rule,
            display_name=f"Only SYSTEM and {name} can use {wanted.address}",
            direction="out",
            action="block",
            protocol="TCP",
            port=",".join(wanted.ports),
            remote_address=wanted.address,
            local_user=f"O:LSD:(D;;CC;;;{SYSTEM})(D;;CC;;;{group.sid})(A;;CC;;;{EVERYONE})",
        )
    )


def _read(machine: Machine) -> _Wanted:
    try:
        return _Wanted.model_validate_json(machine.files.read(FILE).decode("utf-8-sig", "replace"))
    except pydantic.ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise RefusedByWindows(f"cannot read {FILE}: {where}{': ' if where else ''}{found['msg']}") from error
