"""Resource groups: they come and go with all that is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import vaults
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.world import Call, World


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


def list_all(world: World, call: Call) -> Response:
    """Every group, with its tags."""
    _refuse_filter(call)
    return Response.of_json(200, {"value": world.resources.of_type("Microsoft.Resources/resourceGroups")})


def list_resources(world: World, call: Call) -> Response:
    """What is in a group, without its properties; deployments and what is below a resource are not among it."""
    _refuse_filter(call)
    world.group(call.group)
    shown = ("id", "name", "type", "location", "tags")
    found = [
        {name: resource[name] for name in shown}
        for resource in world.resources.below(f"{call.group}/providers")
        if resource["type"].count("/") == 1 and resource["type"] != "Microsoft.Resources/deployments"
    ]
    return Response.of_json(200, {"value": found})


def _refuse_filter(call: Call) -> None:
    # Azure shows no tags in what it filtered by a tag.
    if "$filter" in call.request.query:
        fault = f"unexpected filter {call.request.query['$filter']}"
        raise ArmError(400, "InvalidFilterInQueryString", fault, fault=fault)


def delete(world: World, call: Call) -> Response:
    world.group(call.group)
    for vault in world.resources.children(f"{call.group}/providers/{vaults.VAULT}"):
        vaults.soft_delete(world, vault)
    world.resources.remove(str(call.group))
    prefix = f"{call.group}/".lower()
    for key in [each for each in world.machines if each.startswith(prefix)]:
        del world.machines[key]
    return Response(200)
