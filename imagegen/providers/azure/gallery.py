"""The image definition in a Compute Gallery: its versions, their replicas, the version of a plan and the next one."""

from __future__ import annotations

import datetime
import enum
import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from packaging.version import Version

from imagegen.base.errors import PublishError, RefusedError
from imagegen.providers import CloudImage, RunFacts, SearchResult
from imagegen.providers.azure.failures import explain_errors, is_transient
from imagegen.providers.azure.settings import Settings
from imagegen.providers.tags import NAME, PREFERENCE, REJECTED, REPORT, RUN_ID, is_same_image, labels_of
from imagegen.providers.time_limits import Clock, wait_for

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.plan.model import BuildPlan

SUCCEEDED = "Succeeded"
UPDATING = "Updating"
FAILED = "Failed"
COMPLETED = "Completed"
MARK_LIMIT_S = 600.0
APPEARING_LIMIT_S = 120.0
# The versions for runs in the same second; 235959 times this number is below the largest integer.
PER_SECOND = 1000
RERUN = "run the same command again: it continues, and keeps finished copies"
# The end of the resource id in the artifact of Packer's plugin; its case may differ.
_VERSION_ID: Final = re.compile(r"/galleries/[^/\s]+/images/[^/\s]+/versions/(?P<name>[0-9.]+)", re.IGNORECASE)


class Definition(NamedTuple):
    """The place of an image definition: the names with which requests of the SDK begin."""

    resource_group: str
    gallery: str
    name: str

    def __str__(self) -> str:
        return f"{self.gallery}/{self.name}"

    @property
    def missing(self) -> str:
        """The hint where it does not exist."""
        return (
            f"the gallery {self.gallery} in resource group {self.resource_group} and its image definition {self.name} "
            "must exist: create them, or correct targets.azure.gallery in the config"
        )

    def versions(self, client: ComputeManagementClient) -> list[GalleryImageVersion]:
        """All versions, without their replication status."""
        with explain_errors(f"listing the versions of {self}", RefusedError, missing=self.missing):
            return list(client.gallery_image_versions.list_by_gallery_image(*self))

    def version(self, client: ComputeManagementClient, name: str) -> GalleryImageVersion:
        """One version with its replication status. Raises the errors of the SDK."""
        return client.gallery_image_versions.get(*self, name, expand="ReplicationStatus")

    def read(self, client: ComputeManagementClient, name: str) -> GalleryImageVersion:
        """One version with its replication status."""
        with explain_errors(f"reading {self}/{name}", RefusedError):
            return self.version(client, name)

    def deletion(self, version: str) -> str:
        """The command that deletes one version."""
        return (
            f"az sig image-version delete --resource-group {self.resource_group} --gallery-name {self.gallery} "
            f"--gallery-image-definition {self.name} --gallery-image-version {version}"
        )


def definition_of(settings: Settings) -> Definition:
    """The image definition of a target."""
    return Definition(settings.gallery.resource_group, settings.gallery.name, settings.gallery.definition)


def find_built(client: ComputeManagementClient, plan: BuildPlan[Settings], run: RunFacts) -> SearchResult:
    """The highest version of this plan with exactly these labels that contains an image in the build region.

    An accepted version comes first. A version with a rejected report is returned only where there is no other.
    """
    definition, home = definition_of(plan.settings), plan.settings.location
    versions = definition.versions(client)
    same = [version for version in versions if is_same_image(version.tags or {}, plan.image_id, run.labels)]
    built = [version for version in same if is_built(client, definition, version, home)]
    best = max(built, key=_preference, default=None)
    rejected = [
        f"{definition}/{version.name} was rejected, because the report of its machine was not as planned. It can still "
        f"be used by its number. To delete it: `{definition.deletion(version.name or '')}`"
        for version in versions
        if _is_rejected(version.tags or {}, plan.build.name, run.labels)
    ]
    if best is not None:
        return SearchResult(cloud_image(best, definition, home), tuple(rejected))
    failed = [
        f"{definition}/{name} of this image is in state Failed ({reason_in(definition.read(client, name))}) "
        f"and is not used; delete it: `{definition.deletion(name)}`"
        for name in (version.name or "" for version in same if version.provisioning_state == FAILED)
    ]
    return SearchResult(None, (*rejected, *failed))


def _preference(version: GalleryImageVersion) -> tuple[int, Version]:
    return -PREFERENCE.get((version.tags or {}).get(REPORT, ""), 1), Version(version.name or "0")


def _is_rejected(tags: Mapping[str, str], name: str, labels: Mapping[str, str]) -> bool:
    return tags.get(REPORT) == REJECTED and tags.get(NAME) == name and labels_of(tags) == dict(labels)


def build_again(plan: BuildPlan[Settings], image: CloudImage) -> str:
    """A version that the config decides must be deleted first: Azure has no second version with the same number."""
    command = definition_of(plan.settings).deletion(image.id.rpartition("/")[2])
    if fixed_version(plan.settings, plan.image.versions["kubernetes"]) is not None:
        return f"delete it, and run `imagegen build` again: `{command}`"
    return f"build again with `imagegen build --rebuild`; to delete {image.name}: `{command}`"


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
        raise PublishError(f"{definition}/{name} was built, but the gallery does not show it", hint=RERUN)
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
        return version if is_settled(version) else None

    version = wait_for(poll, limit_s=MARK_LIMIT_S, clock=clock, is_transient=is_transient)
    if version is None:
        raise PublishError(f"another update of {image.name} did not end within {MARK_LIMIT_S / 60:g} minutes")
    # polling=False: publishing waits for the end of the update.
    client.gallery_image_versions.begin_update(
        *definition,
        name,
        GalleryImageVersionUpdate(tags={**(version.tags or {}), REPORT: report}),
        polling=False,
    )


def is_settled(version: GalleryImageVersion) -> bool:
    """Whether no update of a version is running."""
    return version.provisioning_state in (SUCCEEDED, FAILED)


def is_built(client: ComputeManagementClient, definition: Definition, version: GalleryImageVersion, home: str) -> bool:
    """Whether a version contains an image: replication to other regions may be unfinished or may have failed."""
    if version.provisioning_state == FAILED:
        return has_image(definition.read(client, version.name or ""), home)
    return version.provisioning_state in (SUCCEEDED, UPDATING)


def has_image(version: GalleryImageVersion, home: str) -> bool:
    """Whether a failed version contains an image in the build region, because only another region failed."""
    return replication(version).get(home, Replica()).state == COMPLETED


def reason_in(version: GalleryImageVersion) -> str:
    """Azure's reason why a version is in state Failed, from its replication status."""
    reasons = [
        f"{region}: {replica.details or 'no reason given'}"
        for region, replica in replication(version).items()
        if replica.state == FAILED
    ]
    return "; ".join(reasons) or "Azure gives no reason"


class Replica(NamedTuple):
    """The replication to one region."""

    state: str = "Unknown"
    details: str = ""
    progress: int = 0


def replication(version: GalleryImageVersion) -> dict[str, Replica]:
    """The replicas by region; empty where Azure returns no replication status."""
    status = version.replication_status
    return {
        region_key(entry.region or ""): Replica(state_word(entry.state), entry.details or "", entry.progress or 0)
        for entry in (status.summary if status else None) or []
    }


def replica_of(replicas: Mapping[str, Replica], region: str) -> Replica:
    """The replica in a region. Where Azure returns only other replicas, this one does not exist yet."""
    return replicas.get(region, Replica() if replicas else Replica(COMPLETED, progress=100))


def region_key(name: str) -> str:
    """The name of a region in configs; Azure also returns display names such as `West Europe`."""
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
        (version.tags or {}).get(RUN_ID, ""),
    )


def state_word(value: object) -> str:
    """A state of Azure as text. str() of the SDK's enumerations would return the Python name."""
    return str(value.value if isinstance(value, enum.Enum) else value or "")


def next_version(client: ComputeManagementClient, plan: BuildPlan[Settings], run: RunFacts, chance: int) -> str:
    """The version of a build of this plan, by the rule in the config; raises where that version exists.

    `chance`, a random number below PER_SECOND, distinguishes runs that start in the same second: neither sees the
    version of the other before its capture, hours later.
    """
    definition = definition_of(plan.settings)
    taken = {version.name or "": version for version in definition.versions(client)}
    fixed = fixed_version(plan.settings, plan.image.versions["kubernetes"])
    if fixed is not None:
        _check_free(client, fixed, plan.settings.gallery.version, definition, taken)
        return fixed
    time = datetime.datetime.fromisoformat(run.started).astimezone(datetime.UTC)
    patch = int(time.strftime("%H%M%S")) * PER_SECOND + chance
    candidates = (f"{time.year}.{time.month * 100 + time.day}.{patch + more}" for more in itertools.count())
    return next(candidate for candidate in candidates if candidate not in taken)


def fixed_version(settings: Settings, kubernetes: str) -> str | None:
    """The version that `gallery.version` decides; None where it comes from the time."""
    rule = settings.gallery.version
    return {"date": None, "kubernetes": kubernetes}.get(rule, rule)


def is_version_name(text: str) -> bool:
    """Whether a gallery accepts the text as a version: three integers of 32 bits."""
    return re.fullmatch(r"[0-9]+(\.[0-9]+){2}", text) is not None and max(map(int, text.split("."))) < 2**31


def _check_free(
    client: ComputeManagementClient,
    version: str,
    rule: str,
    definition: Definition,
    taken: Mapping[str, GalleryImageVersion],
) -> None:
    if not is_version_name(version):
        raise RefusedError(
            f"{'Kubernetes ' if rule == 'kubernetes' else ''}{version} is not a valid gallery version: "
            "it needs three integers",
            hint="set targets.azure.gallery.version to date",
        )
    if version not in taken:
        return
    label, instead = f"{definition}/{version}", "date" if rule == "kubernetes" else "another number or to date"
    another = f"set targets.azure.gallery.version to {instead}"
    state = state_word(taken[version].provisioning_state)
    if state == FAILED:
        raise RefusedError(
            f"{label} exists and is in state Failed ({reason_in(definition.read(client, version))}): "
            "Azure creates no second version with the same number",
            hint=f"delete it: `{definition.deletion(version)}`, or {another}",
        )
    if state == "Creating":
        raise RefusedError(
            f"another build is creating {label}", hint=f"wait for it and run the same command again, or {another}"
        )
    raise RefusedError(
        f"{label} exists already, and imagegen never overwrites a version",
        hint=f"{another}, or delete that version: `{definition.deletion(version)}`",
    )
