"""Finds the gallery version of a plan, and reads the replication of versions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from imagegen.errors import PublishError, RefusedError
from imagegen.providers import CloudImage, RunFacts, SearchResult
from imagegen.providers.azure.definition import Definition, definition_of, state_word
from imagegen.providers.azure.failures import explain_errors, is_transient
from imagegen.providers.azure.settings import Settings
from imagegen.providers.tags import REJECTED, REPORT, is_same_image
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.plan.model import BuildPlan

SUCCEEDED = "Succeeded"
CREATING = "Creating"
UPDATING = "Updating"
FAILED = "Failed"
COMPLETED = "Completed"
MARK_LIMIT_S = 600.0
APPEARING_LIMIT_S = 120.0
# The end of the resource id in the artifact of Packer's plugin; its case may differ.
_VERSION_ID: Final = re.compile(r"/galleries/[^/\s]+/images/[^/\s]+/versions/(?P<name>[0-9.]+)", re.IGNORECASE)


def find_built(client: ComputeManagementClient, plan: BuildPlan[Settings], run: RunFacts) -> SearchResult:
    """The highest version of this plan with exactly these labels that contains an image in the build region.

    A version with a rejected report is returned only where there is no other.
    """
    definition, home = definition_of(plan.settings), plan.settings.location
    same = [
        version
        for version in definition.versions(client)
        if is_same_image(version.tags or {}, plan.image_id, run.labels)
    ]
    built = [version for version in same if is_built(client, definition, version, home)]
    if built:
        best = max(built, key=lambda version: (not is_rejected(version), Version(version.name or "0")))
        return SearchResult(cloud_image(best, definition, home))
    failed = [version.name or "" for version in same if version.provisioning_state == FAILED]
    return SearchResult(None, tuple(_failure(client, definition, name) for name in failed))


def _failure(client: ComputeManagementClient, definition: Definition, name: str) -> str:
    reason, command = reason_of_failure(client, definition, name), definition.deletion(name)
    return f"{definition}/{name} of this image is in state Failed ({reason}) and is not used; delete it: `{command}`"


def read_built(
    client: ComputeManagementClient, plan: BuildPlan[Settings], artifact: str, clock: Clock
) -> CloudImage | None:
    """The version in an artifact of Packer's plugin; None where the artifact has none."""
    from azure.core.exceptions import ResourceNotFoundError

    named = _VERSION_ID.search(artifact)
    if named is None:
        return None
    definition, name = definition_of(plan.settings), named["name"]

    def poll() -> GalleryImageVersion | None:
        try:
            return definition.version(client, name)
        except ResourceNotFoundError:
            return None

    version = wait_for(poll, limit_s=APPEARING_LIMIT_S, clock=clock, is_transient=is_transient)
    if version is None:
        raise PublishError(
            f"{definition}/{name} was built, but the gallery does not show it",
            hint="run the same command again: it continues, and keeps finished copies",
        )
    return cloud_image(version, definition, plan.settings.location)


def mark(
    client: ComputeManagementClient, plan: BuildPlan[Settings], image: CloudImage, report: str, clock: Clock
) -> None:
    """Tag a version with the verdict on its machine's report. An update must contain all tags, or Azure drops them."""
    from azure.mgmt.compute.models import GalleryImageVersionUpdate

    definition, name = definition_of(plan.settings), image.id.rpartition("/")[2]

    def poll() -> GalleryImageVersion | None:
        # Azure allows one update at a time, and an earlier run may have started one.
        version = definition.version(client, name)
        return version if version.provisioning_state in (SUCCEEDED, FAILED) else None

    version = wait_for(poll, limit_s=MARK_LIMIT_S, clock=clock, is_transient=is_transient)
    if version is None:
        raise PublishError(f"another update of {image.name} did not end within {MARK_LIMIT_S / 60:g} minutes")
    # polling=False: publishing waits for the end of the update.
    client.gallery_image_versions.begin_update(
        definition.resource_group,
        definition.gallery,
        definition.name,
        name,
        GalleryImageVersionUpdate(tags={**(version.tags or {}), REPORT: report}),
        polling=False,
    )


def is_rejected(version: GalleryImageVersion) -> bool:
    return (version.tags or {}).get(REPORT) == REJECTED


def is_built(client: ComputeManagementClient, definition: Definition, version: GalleryImageVersion, home: str) -> bool:
    """Whether a version contains an image: replication to other regions may be unfinished or may have failed."""
    if version.provisioning_state == FAILED:
        return has_image(_read(client, definition, version.name or ""), home)
    return version.provisioning_state in (SUCCEEDED, UPDATING)


def has_image(version: GalleryImageVersion, home: str) -> bool:
    """Whether a failed version contains an image in the build region, because only another region failed."""
    replica = replication(version).get(home)
    return replica is not None and replica.state == COMPLETED


def reason_of_failure(client: ComputeManagementClient, definition: Definition, name: str) -> str:
    """Azure's reason why a version is in state Failed."""
    return reason_in(_read(client, definition, name))


def reason_in(version: GalleryImageVersion) -> str:
    """The reason why a version is in state Failed, from its replication status."""
    reasons = [
        f"{region}: {replica.details or 'no reason given'}"
        for region, replica in replication(version).items()
        if replica.state == FAILED
    ]
    return "; ".join(reasons) or "Azure gives no reason"


def _read(client: ComputeManagementClient, definition: Definition, name: str) -> GalleryImageVersion:
    with explain_errors(f"reading {definition}/{name}", RefusedError):
        return definition.version(client, name)


@dataclasses.dataclass(frozen=True)
class Replica:
    """The replication to one region."""

    state: str
    details: str
    progress: int


def replication(version: GalleryImageVersion) -> dict[str, Replica]:
    """The replicas by region; empty where Azure returns no replication status."""
    status = version.replication_status
    return {
        region_key(entry.region or ""): Replica(state_word(entry.state), entry.details or "", entry.progress or 0)
        for entry in (status.summary if status else None) or []
    }


def replica_of(replicas: Mapping[str, Replica], region: str) -> Replica:
    """The replica in a region. Where Azure returns only other replicas, this one does not exist yet."""
    return replicas.get(region, Replica("Unknown", "", 0) if replicas else Replica(COMPLETED, "", 100))


def region_key(name: str) -> str:
    """The name of a region in configs; galleries return display names such as `West Europe`."""
    return name.replace(" ", "").lower()


def cloud_image(version: GalleryImageVersion, definition: Definition, region: str) -> CloudImage:
    """A version as a CloudImage."""
    state = state_word(version.provisioning_state)
    return CloudImage(
        version.id or "",
        region,
        f"{definition}/{version.name}",
        {SUCCEEDED: "available", UPDATING: "pending"}.get(state, state),
        (version.tags or {}).get(REPORT, ""),
    )
