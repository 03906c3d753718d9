"""The subscription itself: its state, its regions, sizes and what is left of them, and what its caller may do.

https://learn.microsoft.com/rest/api: Subscriptions Get and List Locations, Resource Skus List, Usage List, Permissions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import REGIONS, Resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.options import Size
    from imagegen.rehearsal.clouds.azure.world import Call, World

_AT = re.compile(r"location eq '(?P<location>[^']+)'\Z")


def get(world: World, call: Call) -> Response:
    _check_allowed(world, "Microsoft.Resources/subscriptions/read", call)
    subscription = world.application.subscription
    shown = {
        "id": f"/subscriptions/{subscription}",
        "subscriptionId": subscription,
        "tenantId": world.application.tenant,
        "displayName": "Rehearsal",
        "state": world.options.subscription_state,
    }
    return Response.of_json(200, shown)


def list_locations(world: World, call: Call) -> Response:
    _check_allowed(world, "Microsoft.Resources/subscriptions/locations/read", call)
    shown = [
        {
            "id": f"/subscriptions/{world.application.subscription}/locations/{name}",
            "name": name,
            "type": "Region",
            "displayName": label,
            "regionalDisplayName": label,
            "metadata": {"regionType": "Physical", "regionCategory": "Recommended"},
        }
        for name, label in REGIONS.items()
        if name not in world.options.absent_regions
    ]
    return Response.of_json(200, {"value": shown})


def list_sizes(world: World, call: Call) -> Response:
    """Only a filter for one location is known here, as in Azure."""
    _check_allowed(world, "Microsoft.Compute/skus/read", call)
    asked = _AT.match(call.request.query.get("$filter", ""))
    if asked is None:
        raise ArmError(400, "InvalidFilter", "The filter is not one of a location.", fault="unexpected filter of sizes")
    place = region(asked["location"])
    return Response.of_json(200, {"value": [_sku(name, size, place) for name, size in world.options.sizes.items()]})


def _sku(name: str, size: Size, place: str) -> Resource:
    capabilities = {"vCPUs": str(size.vcpus), "HyperVGenerations": size.generations, "CpuArchitectureType": "x64"}
    if not size.trusted_launch:
        capabilities["TrustedLaunchDisabled"] = "True"
    if size.confidential:
        capabilities["ConfidentialComputingType"] = size.confidential
    restrictions = []
    if size.restricted:
        information = {"locations": [place]}
        restrictions.append(
            {"type": "Location", "values": [place], "restrictionInfo": information, "reasonCode": size.restricted}
        )
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.partition("_")[2],
        "family": size.family,
        "locations": [place],
        "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
        "restrictions": restrictions,
    }


def list_usages(world: World, call: Call) -> Response:
    _check_allowed(world, "Microsoft.Compute/locations/usages/read", call)
    region(call.names["location"])
    families = {size.family: (0, world.options.vcpus) for size in world.options.sizes.values()}
    counters = {"cores": (0, world.options.vcpus), "lowPriorityCores": (0, world.options.vcpus), **families}
    shown = [
        {"unit": "Count", "currentValue": used, "limit": limit, "name": {"value": name, "localizedValue": name}}
        for name, (used, limit) in {**counters, **world.options.usages}.items()
    ]
    return Response.of_json(200, {"value": shown})


def list_permissions(world: World, call: Call) -> Response:
    """One role that allows everything but what is denied."""
    _check_allowed(world, "Microsoft.Authorization/permissions/read", call)
    if "group" in call.names:
        world.group(call.group)
    role = {"actions": ["*"], "notActions": sorted(world.options.denied), "dataActions": [], "notDataActions": []}
    return Response.of_json(200, {"value": [role]})


def _check_allowed(world: World, action: str, call: Call) -> None:
    if action in world.options.denied:
        who = f"The client '{world.application.client_id}' with object id '{world.application.object_id}'"
        message = f"{who} does not have authorization to perform action '{action}' over scope '{call.request.path}'."
        raise ArmError(403, "AuthorizationFailed", message)
