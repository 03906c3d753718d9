"""Resource groups: they come and go with all that is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.network.azure.errors import ArmError
from imagegen.rehearsal.network.azure.resources import GroupId, Resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.network.azure.world import Call, World


def make(group: GroupId, location: str, tags: Resource | None = None) -> Resource:
    """A resource group as Azure shows it."""
    return {
        "id": str(group),
        "name": group.name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": region(location),
        "tags": dict(tags or {}),
        "properties": {"provisioningState": "Succeeded"},
    }


def put(world: World, call: Call) -> Response:
    body = call.request.json()
    old = world.resources.find(str(call.group))
    new = make(call.group, body.get("location", ""), body.get("tags"))
    if old is not None and old["location"] != new["location"]:
        raise ArmError(409, "InvalidResourceGroupLocation", f"Resource group '{call.group.name}' is elsewhere.")
    return Response.of_json(200 if old else 201, world.resources.put(new))


def get(world: World, call: Call) -> Response:
    return Response.of_json(200, world.group(call.group))


def head(world: World, call: Call) -> Response:
    return Response(404 if world.resources.find(str(call.group)) is None else 204)


def delete(world: World, call: Call) -> Response:
    world.group(call.group)
    world.resources.remove(str(call.group))
    prefix = f"{call.group}/".lower()
    for key in [each for each in world.machines if each.startswith(prefix)]:
        del world.machines[key]
    return Response(200)
