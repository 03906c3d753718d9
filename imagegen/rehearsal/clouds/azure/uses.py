"""What cannot be deleted because something else uses it, in Azure's own codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.world import World

# By the type of what is deleted: the types of what may use it, and how Azure refuses.
_USERS = {
    "microsoft.network/networkinterfaces": (("virtualmachines",), 400, "NicInUse"),
    "microsoft.network/publicipaddresses": (("networkinterfaces",), 400, "PublicIPAddressCannotBeDeleted"),
    "microsoft.network/virtualnetworks": (("networkinterfaces",), 400, "InUseSubnetCannotBeDeleted"),
    "microsoft.network/networksecuritygroups": (
        ("networkinterfaces", "virtualnetworks"),
        400,
        "InUseNetworkSecurityGroupCannotBeDeleted",
    ),
    "microsoft.compute/disks": (("virtualmachines",), 409, "OperationNotAllowed"),
}


def refuse_used(world: World, resource_id: str, kind: str) -> None:
    """Raise when a resource that still exists names this one, or a part of it."""
    if not world.options.refuses_used:
        return
    users, status, code = _USERS[kind.lower()]
    for user in world.resources.below(f"/subscriptions/{world.application.subscription}"):
        if str(user.get("type", "")).lower().rpartition("/")[2] not in users:
            continue
        text = json.dumps(user["properties"]).lower()
        if f'"{resource_id.lower()}"' in text or f'"{resource_id.lower()}/' in text:
            raise ArmError(status, code, f"{resource_id} is used by {user['id']}.")
