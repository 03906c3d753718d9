"""What an account has before a build: resource groups of its own, each with a network or a key vault where wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import groups, networks, vaults
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, region
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.options import ExistingGroup
    from imagegen.rehearsal.clouds.azure.world import Call, World


def prepare_encryption_set(world: World, set_id: str, location: str) -> None:
    """Make a disk encryption set that exists from the start; a config names it by its whole id."""
    world.resources.put({"id": set_id, "type": "Microsoft.Compute/diskEncryptionSets", "location": region(location)})


def get_encryption_set(world: World, call: Call) -> Response:
    return Response.of_json(200, world.resources.get(call.id("Microsoft.Compute/diskEncryptionSets", "name")))


def prepare(world: World, wanted: ExistingGroup) -> None:
    """Make a group that exists from the start, with what is in it; a group may be named for several reasons."""
    group = GroupId(world.application.subscription, wanted.name)
    if world.resources.find(str(group)) is None:
        world.resources.put(groups.make(group, wanted.location))
    spec: Resource = {"location": world.group(group)["location"]}
    if wanted.network:
        subnets = {"subnets": [{"name": wanted.subnet, "properties": {}}]}
        world.resources.put(networks.create_network(world, group, wanted.network, {**spec, "properties": subnets}))
    if wanted.key_vault:
        application = world.application
        # Open to the one application, and to machines that are being made.
        policy = {"objectId": application.object_id, "permissions": {"secrets": ["all"]}}
        properties = {"tenantId": application.tenant, "enabledForDeployment": True, "accessPolicies": [policy]}
        world.resources.put(vaults.create(world, group, wanted.key_vault, {**spec, "properties": properties}))
