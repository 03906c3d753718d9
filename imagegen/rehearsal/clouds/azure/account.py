"""The subscription: its state, its regions, the sizes of virtual machines, the usage of quotas, and the permissions.

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
    from imagegen.rehearsal.clouds.azure.state import AzureState, Call

_LOCATION_FILTER = re.compile(r"location eq '(?P<location>[^']+)'\Z")


def get(state: AzureState, call: Call) -> Response:
    _check_allowed(state, "Microsoft.Resources/subscriptions/read", call)
    subscription = state.application.subscription
    body = {
        "id": f"/subscriptions/{subscription}",
        "subscriptionId": subscription,
        "tenantId": state.application.tenant,
        "displayName": "Rehearsal",
        "state": state.options.subscription_state,
    }
    return Response.of_json(200, body)


def list_locations(state: AzureState, call: Call) -> Response:
    _check_allowed(state, "Microsoft.Resources/subscriptions/locations/read", call)
    locations = [
        {
            "id": f"/subscriptions/{state.application.subscription}/locations/{name}",
            "name": name,
            "type": "Region",
            "displayName": label,
            "regionalDisplayName": label,
            "metadata": {"regionType": "Physical", "regionCategory": "Recommended"},
        }
        for name, label in REGIONS.items()
        if name not in state.options.absent_regions
    ]
    return Response.of_json(200, {"value": locations})


def list_sizes(state: AzureState, call: Call) -> Response:
    """List the sizes in one location, which is the only filter that Azure supports."""
    _check_allowed(state, "Microsoft.Compute/skus/read", call)
    match = _LOCATION_FILTER.match(call.request.query.get("$filter", ""))
    if match is None:
        raise ArmError(400, "InvalidFilter", "The filter is not one of a location.", fault="unexpected filter of sizes")
    location = region(match["location"])
    return Response.of_json(200, {"value": [_sku(name, size, location) for name, size in state.options.sizes.items()]})


def _sku(name: str, size: Size, location: str) -> Resource:
    capabilities = {"vCPUs": str(size.vcpus), "HyperVGenerations": size.generations, "CpuArchitectureType": "x64"}
    if not size.trusted_launch:
        capabilities["TrustedLaunchDisabled"] = "True"
    if size.confidential:
        capabilities["ConfidentialComputingType"] = size.confidential
    restrictions = []
    if size.restricted:
        information = {"locations": [location]}
        restrictions.append(
            {"type": "Location", "values": [location], "restrictionInfo": information, "reasonCode": size.restricted}
        )
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.partition("_")[2],
        "family": size.family,
        "locations": [location],
        "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
        "restrictions": restrictions,
    }


def list_usages(state: AzureState, call: Call) -> Response:
    _check_allowed(state, "Microsoft.Compute/locations/usages/read", call)
    region(call.names["location"])
    families = {size.family: (0, state.options.vcpu_limit) for size in state.options.sizes.values()}
    counters = {"cores": (0, state.options.vcpu_limit), "lowPriorityCores": (0, state.options.vcpu_limit), **families}
    usages = [
        {"unit": "Count", "currentValue": used, "limit": limit, "name": {"value": name, "localizedValue": name}}
        for name, (used, limit) in {**counters, **state.options.usages}.items()
    ]
    return Response.of_json(200, {"value": usages})


def list_permissions(state: AzureState, call: Call) -> Response:
    """List one role, which allows everything except the denied actions."""
    _check_allowed(state, "Microsoft.Authorization/permissions/read", call)
    if "group" in call.names:
        state.group(call.group)
    role = {
        "actions": ["*"],
        "notActions": sorted(state.options.denied_actions),
        "dataActions": [],
        "notDataActions": [],
    }
    return Response.of_json(200, {"value": [role]})


def _check_allowed(state: AzureState, action: str, call: Call) -> None:
    if action in state.options.denied_actions:
        client = f"The client '{state.application.client_id}' with object id '{state.application.object_id}'"
        message = f"{client} does not have authorization to perform action '{action}' over scope '{call.request.path}'."
        raise ArmError(403, "AuthorizationFailed", message)
