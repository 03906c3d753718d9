"""What builds have in one subscription, by the run's tag and by the names that Packer's plugin gives.

A build of its own has a group of its own, which goes as a whole. In a group of the operator's, the plugin tags what its
template makes; the disk of a machine is made by Azure and has no tag. The deployment is recorded before its first
resource is made and deleted after its last one, and knows the tags: it stands for what it made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import ConfigError, RefusedError
from imagegen.providers import Leftover
from imagegen.providers.azure import gallery, vault
from imagegen.providers.azure.definition import Definition, state_word
from imagegen.providers.azure.failures import explained, is_answer_of_azure
from imagegen.providers.search import Search
from imagegen.providers.tags import EXPIRES_AT, IMAGE_ID, RUN_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from azure.mgmt.compute import ComputeManagementClient

    from imagegen.providers import Remains
    from imagegen.providers.azure.arm import Arm
    from imagegen.providers.azure.place import Place

    _Deployment = tuple[str, dict[str, Any], dict[str, str]]

GROUP: Final = "resource group"
DEPLOYMENT: Final = "deployment"
DELETED_VAULT: Final = "soft-deleted key vault"
VERSION: Final = "gallery version"
DISK: Final = "disk"
# By the type of a resource: what it is called, and the version of its API. In the order in which they can be removed.
TYPES: Final = {
    "microsoft.compute/virtualmachines": ("virtual machine", "2024-07-01"),
    "microsoft.network/networkinterfaces": ("network interface", "2024-05-01"),
    "microsoft.network/publicipaddresses": ("public address", "2024-05-01"),
    "microsoft.network/virtualnetworks": ("virtual network", "2024-05-01"),
    "microsoft.network/networksecuritygroups": ("network security group", "2024-05-01"),
    "microsoft.compute/disks": (DISK, "2024-03-02"),
    "microsoft.keyvault/vaults": ("key vault", "2023-07-01"),
}
RESOURCES_API: Final = "2021-04-01"
VAULTS_API: Final = "2023-07-01"
VERSIONS_API: Final = "2024-03-03"

_GROUP_NAME: Final = re.compile(r"pkr-Resource-Group-[a-z0-9]{10}\Z", re.IGNORECASE)
_NAME: Final = re.compile(r"pkr(?:vm|ni|ip|vn|sg|os|dd|kv)(?P<suffix>[a-z0-9]{10})(?:\W.*)?\Z", re.IGNORECASE)
_DEPLOYMENT_NAME: Final = re.compile(r"(?:kv)?pkrdp(?P<suffix>[a-z0-9]{10})\Z", re.IGNORECASE)


def find(arm: Arm, compute: ComputeManagementClient, place: Place) -> Remains:
    """Everything of builds but finished images, in the order in which it can be removed."""
    search = _search(arm)
    search.ask("gallery versions", lambda: _versions(compute, place))
    search.ask("resource groups", lambda: _groups(arm))
    if place.build_resource_group:
        _search_group(search, arm, place.build_resource_group)
        if name := place.key_vault:
            group = f"{arm.root}/resourceGroups/{place.build_resource_group}"
            search.ask(f"secrets in {name}", lambda: vault.find_secrets(arm, group, name))
    return search.remains


def find_deleted_vaults(arm: Arm) -> Remains:
    """The temporary key vaults, which Azure keeps for a while after their deletion."""
    search = _search(arm)
    search.ask("deleted key vaults", lambda: _deleted_vaults(arm))
    return search.remains


def _search(arm: Arm) -> Search:
    return Search(
        lambda doing: explained(f"{doing} in subscription {arm.subscription}", RefusedError), is_answer_of_azure
    )


def _search_group(search: Search, arm: Arm, name: str) -> None:
    """The single resources, and then the deployments, without which nobody would know the disks that they made."""
    group = f"{arm.root}/resourceGroups/{name}"
    deployments: list[_Deployment] = []

    def list_deployments() -> Iterator[Leftover]:
        for deployment in _deployments(arm, group):
            deployments.append(deployment)
        yield from ()

    search.ask(f"deployments in {name}", list_deployments)
    if search.ask(f"resources in {name}", lambda: _resources(arm, group, deployments)):
        search.ask(f"deployments in {name}", lambda: map(_deployment_leftover, deployments))


def _groups(arm: Arm) -> Iterator[Leftover]:
    for group in arm.listed(f"{arm.root}/resourcegroups", RESOURCES_API):
        if _GROUP_NAME.match(group["name"]) and RUN_ID in (group.get("tags") or {}):
            yield _leftover(GROUP, group, group["tags"], group["properties"]["provisioningState"])


def _resources(arm: Arm, group: str, deployments: Sequence[_Deployment]) -> Iterator[Leftover]:
    """What is tagged, and what a deployment made and Azure did not tag."""
    tags_by_suffix = {suffix: tags for suffix, _, tags in deployments}
    resources = []
    for resource in arm.listed(f"{group}/resources", RESOURCES_API):
        kind, _ = TYPES.get(resource["type"].lower(), ("", ""))
        name = _NAME.match(resource["name"])
        if not kind or name is None:
            continue
        tags = resource.get("tags") or {}
        if RUN_ID not in tags and kind == DISK:
            tags = tags_by_suffix.get(name["suffix"].lower(), {})
        if RUN_ID in tags:
            resources.append(_leftover(kind, resource, tags, "in a group of the operator's"))
    order = [kind for kind, _ in TYPES.values()]
    yield from sorted(resources, key=lambda leftover: order.index(leftover.kind))


def _deployment_leftover(deployment: _Deployment) -> Leftover:
    _, found, tags = deployment
    return _leftover(DEPLOYMENT, found, tags, found["properties"]["provisioningState"])


def _deployments(arm: Arm, group: str) -> Iterator[_Deployment]:
    """Our deployments: the end of their names, which is that of all that they made, themselves, and their tags."""
    for deployment in arm.listed(f"{group}/providers/Microsoft.Resources/deployments", RESOURCES_API):
        name = _DEPLOYMENT_NAME.match(deployment["name"])
        if name is None:
            continue
        exported = arm.post(f"{deployment['id']}/exportTemplate", RESOURCES_API) or {}
        for resource in exported.get("template", {}).get("resources", []):
            tags = resource.get("tags") or {}
            if RUN_ID in tags:
                yield name["suffix"].lower(), deployment, tags
                break


def _deleted_vaults(arm: Arm) -> Iterator[Leftover]:
    for deleted in arm.listed(f"{arm.root}/providers/Microsoft.KeyVault/deletedVaults", VAULTS_API):
        properties = deleted["properties"]
        tags = properties.get("tags") or {}
        # What is protected from purging goes by itself, and by nobody's doing before that.
        if RUN_ID in tags and _NAME.match(deleted["name"]) and not properties.get("purgeProtectionEnabled"):
            yield _leftover(DELETED_VAULT, {**deleted, "location": properties["location"]}, tags, "deleted")


def _versions(compute: ComputeManagementClient, place: Place) -> Iterator[Leftover]:
    from azure.core.exceptions import ResourceNotFoundError

    definition = Definition(place.resource_group, place.gallery, place.definition)
    try:
        versions = definition.versions(compute)
    except ConfigError as error:
        # A definition that is not there has none.
        if isinstance(error.__cause__, ResourceNotFoundError):
            return
        raise
    for version in versions:
        tags = version.tags or {}
        # What was published once has no expiry any more, whatever becomes of it later.
        if RUN_ID not in tags or EXPIRES_AT not in tags:
            continue
        if not gallery.is_built(compute, definition, version, place.location):
            found = {"id": version.id, "name": f"{definition}/{version.name}", "location": version.location}
            yield _leftover(VERSION, found, tags, state_word(version.provisioning_state))


def _leftover(kind: str, resource: Mapping[str, Any], tags: Mapping[str, str], state: str) -> Leftover:
    return Leftover(
        kind=kind,
        id=resource["id"],
        region=resource.get("location", ""),
        name=resource["name"],
        state=state,
        run_id=tags[RUN_ID],
        expires_at=tags.get(EXPIRES_AT, ""),
        image_id=tags.get(IMAGE_ID, ""),
    )
