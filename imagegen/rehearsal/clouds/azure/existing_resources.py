"""The resources in the subscription before a build: resource groups, networks, key vaults and disk encryption sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import groups, networks, vaults
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.options import ExistingGroup
    from imagegen.rehearsal.clouds.azure.state import AzureState, Call


def create_encryption_set(state: AzureState, set_id: str, location: str) -> None:
    """Create a disk encryption set with the id in the config."""
    state.resources.put({"id": set_id, "type": "Microsoft.Compute/diskEncryptionSets", "location": region(location)})


def get_encryption_set(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.resources.get(call.id("Microsoft.Compute/diskEncryptionSets", "name")))


def create_group(state: AzureState, existing: ExistingGroup) -> None:
    """Create a resource group with its network and key vault. The config can name a group several times."""
    group = GroupId(state.application.subscription, existing.name)
    if state.resources.find(str(group)) is None:
        state.resources.put(groups.make(group, existing.location))
    spec: Resource = {"location": state.group(group)["location"]}
    if existing.network:
        subnets = {"subnets": [{"name": existing.subnet, "properties": {}}]}
        state.resources.put(networks.create_network(state, group, existing.network, {**spec, "properties": subnets}))
    if existing.key_vault:
        application = state.application
        # The application has access, and machines that are being created.
        policy = {"objectId": application.object_id, "permissions": {"secrets": ["all"]}}
        properties = {"tenantId": application.tenant, "enabledForDeployment": True, "accessPolicies": [policy]}
        state.resources.put(vaults.create(state, group, existing.key_vault, {**spec, "properties": properties}))
