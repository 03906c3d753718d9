"""The versions of a plan's image definition: which of them is the plan's, and how far each region's replica is."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from imagegen.errors import PublishError, RefusedError
from imagegen.providers import CloudImage, Found
from imagegen.providers.azure.definition import Definition, definition_of, state_word
from imagegen.providers.azure.failures import explained, is_passing
from imagegen.providers.tags import REJECTED, REPORT, is_same_image
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.plan.model import BuildPlan
    from imagegen.providers import Run
    from imagegen.providers.azure.settings import Settings

SUCCEEDED = "Succeeded"
CREATING = "Creating"
UPDATING = "Updating"
FAILED = "Failed"
COMPLETED = "Completed"
MARK_LIMIT_S = 600.0
APPEARING_LIMIT_S = 120.0
# The end of the resource id by which Packer's plugin names what it made, whoever wrote the rest of it in which case.
_VERSION_ID: Final = re.compile(r"/galleries/[^/\s]+/images/[^/\s]+/versions/(?P<name>[0-9.]+)", re.IGNORECASE)


def find_built(client: ComputeManagementClient, plan: BuildPlan[Settings], run: Run) -> Found:
    """The highest version of this plan with exactly these labels that has its bytes in the build region.

    A rejected one is taken only where there is no other; one that failed before it had any bytes never.
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
        return Found(cloud_image(best, definition, home))
    failed = [version.name or "" for version in same if version.provisioning_state == FAILED]
    return Found(None, tuple(_failure(client, definition, name) for name in failed))


def _failure(client: ComputeManagementClient, definition: Definition, name: str) -> str:
    reason, command = reason_of_failure(client, definition, name), definition.deletion(name)
    return f"{definition}/{name} of this image ended Failed ({reason}) and is not used; delete it: `{command}`"


def read_built(
    client: ComputeManagementClient, plan: BuildPlan[Settings], artifact: str, clock: Clock
) -> CloudImage | None:
    """The version that an artifact of Packer's plugin names; None where it names none."""
    from azure.core.exceptions import ResourceNotFoundError

    named = _VERSION_ID.search(artifact)
    if named is None:
        return None
    definition, name = definition_of(plan.settings), named["name"]

    def look() -> GalleryImageVersion | None:
        try:
            return definition.version(client, name)
        except ResourceNotFoundError:
            return None

    version = wait_for(look, limit_s=APPEARING_LIMIT_S, clock=clock, passes=is_passing)
    if version is None:
        raise PublishError(
            f"{definition}/{name} was built, and the gallery does not show it",
            hint="run the same command again: it continues with what is there",
        )
    return cloud_image(version, definition, plan.settings.location)


def mark(
    client: ComputeManagementClient, plan: BuildPlan[Settings], image: CloudImage, report: str, clock: Clock
) -> None:
    """Tag a version with what became of its machine's report; its other tags are said again, or Azure drops them."""
    from azure.mgmt.compute.models import GalleryImageVersionUpdate

    definition, name = definition_of(plan.settings), image.id.rpartition("/")[2]

    def look() -> GalleryImageVersion | None:
        # Azure takes one update at a time, and an earlier run may have asked for one.
        version = definition.version(client, name)
        return version if version.provisioning_state in (SUCCEEDED, FAILED) else None

    version = wait_for(look, limit_s=MARK_LIMIT_S, clock=clock, passes=is_passing)
    if version is None:
        raise PublishError(f"{image.name} was being updated for {MARK_LIMIT_S / 60:g} minutes")
    tags = {**(version.tags or {}), REPORT: report}
    # polling=False: publishing waits until the version is settled.
    client.gallery_image_versions.begin_update(
        definition.resource_group,
        definition.gallery,
        definition.name,
        name,
        GalleryImageVersionUpdate(tags=tags),
        polling=False,
    )


def is_rejected(version: GalleryImageVersion) -> bool:
    return (version.tags or {}).get(REPORT) == REJECTED


def is_built(client: ComputeManagementClient, definition: Definition, version: GalleryImageVersion, home: str) -> bool:
    """Succeeded, or succeeded once: a failed or unfinished replication elsewhere says nothing about the build."""
    if version.provisioning_state in (SUCCEEDED, UPDATING):
        return True
    if version.provisioning_state != FAILED:
        return False
    return has_bytes(_read(client, definition, version.name or ""), home)


def has_bytes(version: GalleryImageVersion, home: str) -> bool:
    """Whether the image is there although a replication elsewhere failed: only what Azure says of the region counts."""
    replica = replication(version).get(home)
    return replica is not None and replica.state == COMPLETED


def reason_of_failure(client: ComputeManagementClient, definition: Definition, name: str) -> str:
    """Why a version ended Failed, in Azure's words."""
    return reason_in(_read(client, definition, name))


def reason_in(version: GalleryImageVersion) -> str:
    """Why a version that was read with its replication ended Failed."""
    reasons = [
        f"{region}: {replica.details or 'no reason given'}"
        for region, replica in replication(version).items()
        if replica.state == FAILED
    ]
    return "; ".join(reasons) or "Azure gives no reason"


def _read(client: ComputeManagementClient, definition: Definition, name: str) -> GalleryImageVersion:
    with explained(f"asking about {definition}/{name}", RefusedError):
        return definition.version(client, name)


@dataclasses.dataclass(frozen=True)
class Replica:
    """How far one region is."""

    state: str
    details: str
    progress: int


def replication(version: GalleryImageVersion) -> dict[str, Replica]:
    """Each region's replica as Azure tells it; empty where it does not."""
    status = version.replication_status
    return {
        region_key(entry.region or ""): Replica(state_word(entry.state), entry.details or "", entry.progress or 0)
        for entry in (status.summary if status else None) or []
    }


def replica_of(replicas: Mapping[str, Replica], region: str) -> Replica:
    """A region's replica. Where Azure tells of others and not of this one, it has none yet."""
    return replicas.get(region, Replica("Unknown", "", 0) if replicas else Replica(COMPLETED, "", 100))


def region_key(name: str) -> str:
    """A region's name as configs have it: galleries answer with display names, `West Europe`."""
    return name.replace(" ", "").lower()


def cloud_image(version: GalleryImageVersion, definition: Definition, region: str) -> CloudImage:
    """A version as the pipeline knows images."""
    state = state_word(version.provisioning_state)
    return CloudImage(
        version.id or "",
        region,
        f"{definition}/{version.name}",
        {SUCCEEDED: "available", UPDATING: "pending"}.get(state, state),
        (version.tags or {}).get(REPORT, ""),
    )
