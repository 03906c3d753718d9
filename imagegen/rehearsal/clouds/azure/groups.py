"""Resource groups, which are deleted with all their resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import vaults
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.state import AzureState, Call


def make(group: GroupId, location: str, tags: Resource | None = None) -> Resource:
    """Make a resource group in the form of ARM."""
    return {
        "id": str(group),
        "name": group.name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": region(location),
        "tags": dict(tags or {}),
        "properties": {"provisioningState": "Succeeded"},
    }


def put(state: AzureState, call: Call) -> Response:
    body = call.request.json()
    old = state.resources.find(str(call.group))
    new = make(call.group, body.get("location", ""), body.get("tags"))
    if old is not None and old["location"] != new["location"]:
        raise ArmError(409, "InvalidResourceGroupLocation", f"Resource group '{call.group.name}' is elsewhere.")
    return Response.of_json(200 if old else 201, state.resources.put(new))


def get(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.group(call.group))


def head(state: AzureState, call: Call) -> Response:
    return Response(404 if state.resources.find(str(call.group)) is None else 204)


def list_all(state: AzureState, call: Call) -> Response:
    """List every group, with its tags."""
    _reject_filter(call)
    return Response.of_json(200, {"value": state.resources.of_type("Microsoft.Resources/resourceGroups")})


def list_resources(state: AzureState, call: Call) -> Response:
    """List the resources in a group, without properties, nested resources and deployments."""
    _reject_filter(call)
    state.group(call.group)
    fields = ("id", "name", "type", "location", "tags")
    resources = [
        {name: resource[name] for name in fields}
        for resource in state.resources.below(f"{call.group}/providers")
        if resource["type"].count("/") == 1 and resource["type"] != "Microsoft.Resources/deployments"
    ]
    return Response.of_json(200, {"value": resources})


def _reject_filter(call: Call) -> None:
    # If Azure filters by a tag, its answer has no tags.
    if "$filter" in call.request.query:
        fault = f"unexpected filter {call.request.query['$filter']}"
        raise ArmError(400, "InvalidFilterInQueryString", fault, fault=fault)


def delete(state: AzureState, call: Call) -> Response:
    state.group(call.group)
    for vault in state.resources.children(f"{call.group}/providers/{vaults.VAULT}"):
        vaults.soft_delete(state, vault)
    state.resources.remove(str(call.group))
    prefix = f"{call.group}/".lower()
    for key in [key for key in state.machines if key.startswith(prefix)]:
        del state.machines[key]
    return Response(200)
