"""Finds the temporary resources of builds in one subscription by the tag of the run and by the plugin's names.

A temporary resource group is removed as a whole. In the operator's own group, the plugin tags the resources of its
template, but Azure does not tag the disk of the machine. The deployment has the tags; it is created before its first
resource and deleted after its last one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import ConfigError, RefusedError
from imagegen.providers import Leftover, Remains
from imagegen.providers.azure import gallery, vault
from imagegen.providers.azure.arm import Arm
from imagegen.providers.azure.definition import Definition, state_word
from imagegen.providers.azure.failures import explain_errors, is_answer_from_azure
from imagegen.providers.azure.place import Place
from imagegen.providers.search import Search
from imagegen.providers.tags import EXPIRES_AT, IMAGE_ID, RUN_ID

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient

    _Deployment = tuple[str, dict[str, Any], dict[str, str]]

GROUP: Final = "resource group"
DEPLOYMENT: Final = "deployment"
DELETED_VAULT: Final = "soft-deleted key vault"
VERSION: Final = "gallery version"
DISK: Final = "disk"
# The name and API version by resource type, in the order of removal.
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
    """Find all temporary resources of builds, in the order of removal."""
    search = _search(arm)
    search.collect("gallery versions", lambda: _versions(compute, place))
    search.collect("resource groups", lambda: _groups(arm))
    if place.build_resource_group:
        _search_group(search, arm, place.build_resource_group)
        if name := place.key_vault:
            group = f"{arm.root}/resourceGroups/{place.build_resource_group}"
            search.collect(f"secrets in {name}", lambda: vault.find_secrets(arm, group, name))
    return search.remains


def find_deleted_vaults(arm: Arm) -> Remains:
    """Find temporary key vaults, which Azure keeps for a while after their deletion."""
    search = _search(arm)
    search.collect("deleted key vaults", lambda: _deleted_vaults(arm))
    return search.remains


def _search(arm: Arm) -> Search:
    return Search(
        lambda doing: explain_errors(f"{doing} in subscription {arm.subscription}", RefusedError), is_answer_from_azure
    )


def _search_group(search: Search, arm: Arm, name: str) -> None:
    """Find the resources in a group, then the deployments: these go last, because only they identify the disks."""
    group = f"{arm.root}/resourceGroups/{name}"
    deployments: list[_Deployment] = []

    def list_deployments() -> Iterator[Leftover]:
        for deployment in _deployments(arm, group):
            deployments.append(deployment)
        yield from ()

    search.collect(f"deployments in {name}", list_deployments)
    if search.collect(f"resources in {name}", lambda: _resources(arm, group, deployments)):
        search.collect(f"deployments in {name}", lambda: map(_deployment_leftover, deployments))


def _groups(arm: Arm) -> Iterator[Leftover]:
    for group in arm.listed(f"{arm.root}/resourcegroups", RESOURCES_API):
        if _GROUP_NAME.match(group["name"]) and RUN_ID in (group.get("tags") or {}):
            yield _leftover(GROUP, group, group["tags"], group["properties"]["provisioningState"])


def _resources(arm: Arm, group: str, deployments: Sequence[_Deployment]) -> Iterator[Leftover]:
    """Tagged resources, and untagged disks of a deployment."""
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
            resources.append(_leftover(kind, resource, tags, "in the operator's own group"))
    order = [kind for kind, _ in TYPES.values()]
    yield from sorted(resources, key=lambda leftover: order.index(leftover.kind))


def _deployment_leftover(deployment: _Deployment) -> Leftover:
    _, resource, tags = deployment
    return _leftover(DEPLOYMENT, resource, tags, resource["properties"]["provisioningState"])


def _deployments(arm: Arm, group: str) -> Iterator[_Deployment]:
    """The deployments of builds: the suffix of their names and of their resources' names, the deployment, its tags."""
    for deployment in arm.listed(f"{group}/providers/Microsoft.Resources/deployments", RESOURCES_API):
        name = _DEPLOYMENT_NAME.match(deployment["name"])
        if name is None:
            continue
        exported = arm.post(f"{deployment['id']}/exportTemplate", RESOURCES_API) or {}
        tagged = (resource.get("tags") or {} for resource in exported.get("template", {}).get("resources", []))
        if tags := next((tags for tags in tagged if RUN_ID in tags), None):
            yield name["suffix"].lower(), deployment, tags


def _deleted_vaults(arm: Arm) -> Iterator[Leftover]:
    for deleted in arm.listed(f"{arm.root}/providers/Microsoft.KeyVault/deletedVaults", VAULTS_API):
        properties = deleted["properties"]
        tags = properties.get("tags") or {}
        # Azure deletes a vault with purge protection later; nobody can purge it before that.
        if RUN_ID in tags and _NAME.match(deleted["name"]) and not properties.get("purgeProtectionEnabled"):
            yield _leftover(DELETED_VAULT, {**deleted, "location": properties["location"]}, tags, "deleted")


def _versions(compute: ComputeManagementClient, place: Place) -> Iterator[Leftover]:
    from azure.core.exceptions import ResourceNotFoundError

    definition = Definition(place.resource_group, place.gallery, place.definition)
    try:
        versions = definition.versions(compute)
    except ConfigError as error:
        # A definition that does not exist has no versions.
        if isinstance(error.__cause__, ResourceNotFoundError):
            return
        raise
    for version in versions:
        tags = version.tags or {}
        # A version that was published has no expiry.
        if RUN_ID not in tags or EXPIRES_AT not in tags:
            continue
        if not gallery.is_built(compute, definition, version, place.location):
            resource = {"id": version.id, "name": f"{definition}/{version.name}", "location": version.location}
            yield _leftover(VERSION, resource, tags, state_word(version.provisioning_state))


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
