"""Finds and removes the temporary resources of builds in one subscription, by the tag of the run and by their names.

A temporary resource group is removed as a whole. In the operator's own group, the plugin tags the resources of its
template, but Azure does not tag the disk of the machine. The deployment has the tags; it is created before its first
resource and deleted after its last one. In the operator's own key vault, the plugin leaves the builder's certificate
without tags; its name contains the id of the run, and therefore the start time.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.providers import Leftover, Remains
from imagegen.providers.azure import gallery
from imagegen.providers.azure.client import Arm
from imagegen.providers.azure.failures import explain_errors, first_line, is_answer_from_azure, reject_web_page
from imagegen.providers.azure.settings import Place
from imagegen.providers.search import Search
from imagegen.providers.tags import EXPIRES_AT, IMAGE_ID, REPORT, RUN_ID, is_unjudged
from imagegen.providers.time_limits import Clock, wait_for

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.policies import HTTPPolicy, SansIOHTTPPolicy
    from azure.mgmt.compute import ComputeManagementClient

DeleteSecret = Callable[[str, str], None]
# The suffix of a deployment's name and of the names of its resources, its tags, and the deployment itself.
_Deployment = tuple[str, dict[str, str], Leftover]

GROUP: Final = "resource group"
DEPLOYMENT: Final = "deployment"
DELETED_VAULT: Final = "soft-deleted key vault"
VERSION: Final = "gallery version"
SECRET: Final = "key vault secret"  # noqa: S105 - a kind of resource
_DISK: Final = "disk"
_RESOURCES_API: Final = "2021-04-01"
_VAULTS_API: Final = "2023-07-01"
# The kind and API version by resource type, in the order of removal.
_TYPES: Final = {
    "microsoft.compute/virtualmachines": ("virtual machine", "2024-07-01"),
    "microsoft.network/networkinterfaces": ("network interface", "2024-05-01"),
    "microsoft.network/publicipaddresses": ("public address", "2024-05-01"),
    "microsoft.network/virtualnetworks": ("virtual network", "2024-05-01"),
    "microsoft.network/networksecuritygroups": ("network security group", "2024-05-01"),
    "microsoft.compute/disks": (_DISK, "2024-03-02"),
    "microsoft.keyvault/vaults": ("key vault", _VAULTS_API),
}
_API_OF: Final = {
    GROUP: _RESOURCES_API,
    DEPLOYMENT: _RESOURCES_API,
    DELETED_VAULT: _VAULTS_API,
    VERSION: "2024-03-03",
    SECRET: _VAULTS_API,
    **dict(_TYPES.values()),
}
# Azure needs some minutes for a group with a machine.
LIMIT_S: Final = 20 * 60.0

_GROUP_NAME: Final = re.compile(r"pkr-Resource-Group-[a-z0-9]{10}\Z", re.IGNORECASE)
_NAME: Final = re.compile(r"pkr(?:vm|ni|ip|vn|sg|os|dd|kv)(?P<suffix>[a-z0-9]{10})(?:\W.*)?\Z", re.IGNORECASE)
_DEPLOYMENT_NAME: Final = re.compile(r"(?:kv)?pkrdp(?P<suffix>[a-z0-9]{10})\Z", re.IGNORECASE)
# The name by imagegen, or by Packer without imagegen, which adds a random suffix.
_SECRET_NAME: Final = re.compile(
    r"imagegen-(?P<run>(?P<began>[0-9]{8}t[0-9]{6}z)-(?:[0-9a-f]{6}|packer))(?:-[0-9a-f-]{36})?"
)


def find(arm: Arm, compute: ComputeManagementClient, place: Place) -> Remains:
    """Find all temporary resources of builds, in the order of removal."""
    search = _search(arm)
    search.collect("gallery versions", lambda: _versions(compute, place))
    search.collect("resource groups", lambda: _groups(arm))
    if name := place.build_resource_group:
        group = f"{arm.root}/resourceGroups/{name}"
        _search_group(search, arm, group, name)
        if vault := place.key_vault:
            search.collect(f"secrets in {vault}", lambda: _secrets(arm, group, vault))
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


def _search_group(search: Search, arm: Arm, group: str, name: str) -> None:
    """Find the resources in a group, then the deployments: these go last, because only they identify the disks.

    Where the resources cannot be listed, no deployment is returned.
    """
    deployments: list[_Deployment] = []

    def list_deployments() -> Iterator[Leftover]:
        for deployment in _deployments(arm, group):
            deployments.append(deployment)
        yield from ()

    search.collect(f"deployments in {name}", list_deployments)
    search.collect(
        f"resources in {name}",
        lambda: [*_resources(arm, group, deployments), *(leftover for _, _, leftover in deployments)],
    )


def _groups(arm: Arm) -> Iterator[Leftover]:
    for group in arm.listed(f"{arm.root}/resourcegroups", _RESOURCES_API):
        if _GROUP_NAME.match(group["name"]) and RUN_ID in (group.get("tags") or {}):
            yield _leftover(GROUP, group, group["tags"], group["properties"]["provisioningState"])


def _resources(arm: Arm, group: str, deployments: Sequence[_Deployment]) -> list[Leftover]:
    """Tagged resources, and untagged disks of a deployment."""
    tags_by_suffix = {suffix: tags for suffix, tags, _ in deployments}
    resources = []
    for resource in arm.listed(f"{group}/resources", _RESOURCES_API):
        kind, _ = _TYPES.get(resource["type"].lower(), ("", ""))
        name = _NAME.match(resource["name"])
        if not kind or name is None:
            continue
        tags = resource.get("tags") or {}
        if RUN_ID not in tags and kind == _DISK:
            tags = tags_by_suffix.get(name["suffix"].lower(), {})
        if RUN_ID in tags:
            resources.append(_leftover(kind, resource, tags, "in the operator's own group"))
    return sorted(resources, key=lambda leftover: list(_API_OF).index(leftover.kind))


def _deployments(arm: Arm, group: str) -> Iterator[_Deployment]:
    for deployment in arm.listed(f"{group}/providers/Microsoft.Resources/deployments", _RESOURCES_API):
        if name := _DEPLOYMENT_NAME.match(deployment["name"]):
            exported = arm.send("POST", f"{deployment['id']}/exportTemplate", _RESOURCES_API) or {}
            tagged = (resource.get("tags") or {} for resource in exported.get("template", {}).get("resources", []))
            if tags := next((tags for tags in tagged if RUN_ID in tags), None):
                leftover = _leftover(DEPLOYMENT, deployment, tags, deployment["properties"]["provisioningState"])
                yield name["suffix"].lower(), tags, leftover


def _deleted_vaults(arm: Arm) -> Iterator[Leftover]:
    for deleted in arm.listed(f"{arm.root}/providers/Microsoft.KeyVault/deletedVaults", _VAULTS_API):
        properties = deleted["properties"]
        tags = properties.get("tags") or {}
        # Azure deletes a vault with purge protection later; nobody can purge it before that.
        if RUN_ID in tags and _NAME.match(deleted["name"]) and not properties.get("purgeProtectionEnabled"):
            yield _leftover(DELETED_VAULT, {**deleted, "location": properties["location"]}, tags, "deleted")


def _versions(compute: ComputeManagementClient, place: Place) -> Iterator[Leftover]:
    from azure.core.exceptions import ResourceNotFoundError

    definition = gallery.Definition(place.resource_group, place.gallery, place.definition)
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
        if tags.keys() >= {RUN_ID, EXPIRES_AT} and (
            is_unjudged(tags, datetime.datetime.now(datetime.UTC))
            or not gallery.is_built(compute, definition, version, place.location)
        ):
            resource = {"id": version.id, "name": f"{definition}/{version.name}", "location": version.location}
            yield _leftover(VERSION, resource, tags, gallery.state_word(version.provisioning_state))


def _secrets(arm: Arm, group: str, vault: str) -> Iterator[Leftover]:
    """The certificates of builds in a vault; none where the vault does not exist."""
    root = f"{group}/providers/Microsoft.KeyVault/vaults/{vault}"
    for secret in arm.listed(f"{root}/secrets", _VAULTS_API):
        name = secret["name"].rpartition("/")[2]
        if (match := _SECRET_NAME.fullmatch(name)) is None:
            continue
        try:
            began = datetime.datetime.strptime(match["began"], "%Y%m%dt%H%M%Sz").replace(tzinfo=datetime.UTC)
        except ValueError:
            # A name with an invalid time is not from imagegen.
            continue
        # Longer than any build. The journal of a run detects an ended run earlier.
        until = (began + datetime.timedelta(days=7)).strftime("%Y-%m-%dT%H:%M:%SZ")
        place = {"id": f"{root}/secrets/{name}", "name": f"{vault}/{name}", "location": secret.get("location", "")}
        yield _leftover(SECRET, place, {RUN_ID: match["run"], EXPIRES_AT: until}, "")


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


def remove(
    arm: Arm, leftovers: Sequence[Leftover], clock: Clock, delete_secret: DeleteSecret
) -> Iterator[tuple[Leftover, str]]:
    """Remove leftovers one by one, and yield the reason for each that remains; empty where it is gone.

    A deployment identifies its resources, so it is kept while any resource remains.
    """
    has_failed = False
    for leftover in leftovers:
        is_needed = has_failed and leftover.kind == DEPLOYMENT
        failure = "its resources still exist" if is_needed else _remove_one(arm, leftover, clock, delete_secret)
        has_failed = has_failed or bool(failure)
        yield leftover, failure


def _change_of(version: Mapping[str, Mapping[str, str]] | None, leftover: Leftover) -> str:
    """How a gallery version has changed since it was listed; empty where it has not."""
    if version is None:
        return ""
    tags = version.get("tags") or {}
    if (tags.get(RUN_ID), tags.get(EXPIRES_AT)) != (leftover.run_id, leftover.expires_at):
        return "it has other tags now"
    if REPORT in tags:
        return "its report was judged"
    state = version.get("properties", {}).get("provisioningState", "")
    # A failed version may have been completed, or be updated by another run.
    return "" if state == leftover.state else f"it is {state} now"


def _remove_one(arm: Arm, leftover: Leftover, clock: Clock, delete_secret: DeleteSecret) -> str:
    from azure.core.exceptions import AzureError, HttpResponseError

    version = _API_OF[leftover.kind]
    try:
        if leftover.kind == VERSION and (change := _change_of(arm.get(leftover.id, version), leftover)):
            return f"it has changed since it was listed: {change}"
        if leftover.kind == DELETED_VAULT:
            arm.send("POST", f"{leftover.id}/purge", version)
        elif leftover.kind == SECRET:
            # The Resource Manager lists secrets, but cannot delete them.
            vault, _, secret = leftover.name.partition("/")
            delete_secret(vault, secret)
        else:
            arm.send("DELETE", leftover.id, version)
        is_gone = wait_for(lambda: arm.get(leftover.id, version) is None or None, limit_s=LIMIT_S, clock=clock)
    except AzureError as error:
        if isinstance(error, HttpResponseError) and error.error is not None and error.error.code:
            return f"{error.error.code}: {error.error.message}"
        return first_line(error)
    return "" if is_gone else f"Azure did not delete it within {LIMIT_S / 60:g} minutes"


def delete_secret(credential: TokenCredential, vault: str, name: str) -> None:
    """Delete a secret, which remains recoverable as the vault is configured. Raises the errors of the SDK.

    A secret that does not exist is no error: the build may have ended before creating it.
    """
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy, CustomHookPolicy, RetryPolicy
    from azure.core.rest import HttpRequest, HttpResponse

    policies: list[SansIOHTTPPolicy[HttpRequest, HttpResponse] | HTTPPolicy[HttpRequest, HttpResponse]] = [
        RetryPolicy[HttpRequest, HttpResponse](),
        BearerTokenCredentialPolicy(credential, "https://vault.azure.net/.default"),
        CustomHookPolicy(raw_response_hook=reject_web_page),
    ]
    host = f"https://{vault}.vault.azure.net"
    with PipelineClient[HttpRequest, HttpResponse](host, policies=policies) as client:
        response = client.send_request(HttpRequest("DELETE", f"{host}/secrets/{name}", params={"api-version": "7.4"}))
        if response.status_code != 404:
            response.raise_for_status()
