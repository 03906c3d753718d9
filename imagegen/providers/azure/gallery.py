"""One image definition of a Compute Gallery: its versions, which of them is a plan's, and which number is next."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
from typing import TYPE_CHECKING

from imagegen.errors import RefusedError
from imagegen.providers import CloudImage
from imagegen.providers.azure.failures import explained
from imagegen.providers.tags import is_same_image

if TYPE_CHECKING:
    from collections.abc import Mapping

    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.plan.model import BuildPlan
    from imagegen.providers import Run

SUCCEEDED = "Succeeded"
UPDATING = "Updating"
FAILED = "Failed"
COMPLETED = "Completed"

_LARGEST_NUMBER = 2**31 - 1
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\Z")


@dataclasses.dataclass(frozen=True)
class Definition:
    """Where a plan's versions lie."""

    resource_group: str
    gallery: str
    name: str

    def __str__(self) -> str:
        return f"{self.gallery}/{self.name}"

    def versions(self, client: ComputeManagementClient) -> list[GalleryImageVersion]:
        missing = (
            f"the gallery {self.gallery} in resource group {self.resource_group} and its image definition {self.name} "
            "must exist: create them, or correct targets.azure.gallery in the config"
        )
        with explained(f"listing the versions of {self}", RefusedError, missing=missing):
            pages = client.gallery_image_versions.list_by_gallery_image(self.resource_group, self.gallery, self.name)
            return list(pages)

    def version(self, client: ComputeManagementClient, name: str) -> GalleryImageVersion:
        """One version, with how far its replication is; errors are the SDK's."""
        return client.gallery_image_versions.get(
            self.resource_group, self.gallery, self.name, name, expand="ReplicationStatus"
        )


def definition_of(plan: BuildPlan) -> Definition:
    settings = plan.build.settings
    return Definition(settings["resource_group"], settings["gallery"], settings["definition"])


def find_built(client: ComputeManagementClient, plan: BuildPlan, run: Run) -> CloudImage | None:
    """The highest version of this plan with exactly these labels that has its bytes in the build region."""
    definition, location = definition_of(plan), plan.build.settings["location"]
    same = [
        version
        for version in definition.versions(client)
        if is_same_image(version.tags or {}, plan.image_id, run.labels)
        and _is_built(client, definition, version, location)
    ]
    if not same:
        return None
    newest = max(same, key=lambda version: numbers(version.name or "") or (0, 0, 0))
    return cloud_image(newest, definition, location)


def _is_built(client: ComputeManagementClient, definition: Definition, version: GalleryImageVersion, home: str) -> bool:
    """Succeeded, or succeeded once: a failed or unfinished replication elsewhere says nothing about the build."""
    if version.provisioning_state in (SUCCEEDED, UPDATING):
        return True
    if version.provisioning_state != FAILED:
        return False
    with explained(f"asking about {definition}/{version.name}", RefusedError):
        asked = definition.version(client, version.name or "")
    return replica_of(replication(asked), home).state == COMPLETED


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
        region_key(entry.region or ""): Replica(_word(entry.state), entry.details or "", entry.progress or 0)
        for entry in (status.summary if status else None) or []
    }


def replica_of(replicas: Mapping[str, Replica], region: str) -> Replica:
    """A region's replica. Where Azure tells of others and not of this one, it has none yet."""
    return replicas.get(region, Replica("Unknown", "", 0) if replicas else Replica(COMPLETED, "", 100))


def region_key(name: str) -> str:
    """A region's name as configs have it: galleries answer with display names, `West Europe`."""
    return name.replace(" ", "").lower()


def cloud_image(version: GalleryImageVersion, definition: Definition, region: str) -> CloudImage:
    word = _word(version.provisioning_state)
    state = {SUCCEEDED: "available", UPDATING: "pending"}.get(word, word)
    return CloudImage(version.id or "", region, f"{definition}/{version.name}", state)


def _word(value: object) -> str:
    # The SDK's enumerations are texts whose str() is their Python name.
    return str(value.value if isinstance(value, enum.Enum) else value or "")


def next_version(client: ComputeManagementClient, plan: BuildPlan, run: Run) -> str:
    """The number that a build of this plan gets, by the config's rule; one that exists is never built over."""
    definition = definition_of(plan)
    taken = [version.name or "" for version in definition.versions(client)]
    if (fixed := fixed_version(plan)) is not None:
        return _free(fixed, plan.publish.settings["version"], definition, taken)
    day = datetime.datetime.fromisoformat(run.started).astimezone(datetime.UTC)
    major, minor = day.year, day.month * 100 + day.day
    patches = [found[2] for name in taken if (found := numbers(name)) is not None and found[:2] == (major, minor)]
    return f"{major}.{minor}.{max(patches, default=-1) + 1}"


def fixed_version(plan: BuildPlan) -> str | None:
    """The number that the config alone decides; None where it is made of the day."""
    rule: str = plan.publish.settings["version"]
    if rule == "date":
        return None
    return plan.image.versions["kubernetes"] if rule == "kubernetes" else rule


def _free(version: str, rule: str, definition: Definition, taken: list[str]) -> str:
    if numbers(version) is None:
        what = f"Kubernetes {version}" if rule == "kubernetes" else version
        raise RefusedError(
            f"{what} cannot number an image version: a gallery wants three integers",
            hint="set targets.azure.gallery.version to date",
        )
    if version in taken:
        instead = "date" if rule == "kubernetes" else "another number or to date"
        raise RefusedError(
            f"{definition}/{version} exists already, and a published version is never overwritten",
            hint=f"set targets.azure.gallery.version to {instead}, or delete that version yourself",
        )
    return version


def numbers(version: str) -> tuple[int, int, int] | None:
    """A gallery version's three integers, each of 32 bits; None for anything else."""
    match = _VERSION.match(version)
    if match is None:
        return None
    found = (int(match[1]), int(match[2]), int(match[3]))
    return found if max(found) <= _LARGEST_NUMBER else None
