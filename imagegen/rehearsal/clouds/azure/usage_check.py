"""Rejects the deletion of a resource that another resource uses, with Azure's error codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.state import AzureState

# By the type of the resource: the types that can use it, and the status and code of Azure's error.
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


def reject_used(state: AzureState, resource_id: str, kind: str) -> None:
    """Raise an error if another resource contains the id of this one, or of a part of it."""
    if not state.options.rejects_used:
        return
    users, status, code = _USERS[kind.lower()]
    for user in state.resources.below(f"/subscriptions/{state.application.subscription}"):
        if str(user.get("type", "")).lower().rpartition("/")[2] not in users:
            continue
        text = json.dumps(user["properties"]).lower()
        if f'"{resource_id.lower()}"' in text or f'"{resource_id.lower()}/' in text:
            raise ArmError(status, code, f"{resource_id} is used by {user['id']}.")
