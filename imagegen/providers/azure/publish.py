"""A built gallery version, replicated to the regions of a plan and let into `latest`: looked at first, then changed.

What is there decides, not what an earlier run remembers; so a run that was cut off is continued by the next one.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.errors import PublishError
from imagegen.providers import CloudImage, Published
from imagegen.providers.azure.definition import Definition, definition_of
from imagegen.providers.azure.failures import explained, is_passing
from imagegen.providers.azure.gallery import (
    COMPLETED,
    FAILED,
    SUCCEEDED,
    Replica,
    has_bytes,
    reason_in,
    region_key,
    replica_of,
    replication,
)
from imagegen.providers.tags import EXPIRES_AT
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion, TargetRegion

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers.azure.settings import Settings

# Replication of a Windows image to a far region takes up to an hour on a bad day.
LIMIT_S = 2 * 3600.0
# How often an update is asked for that another run, or Azure itself, stands in the way of; and the pause before it.
ATTEMPTS = 5
ATTEMPT_PAUSE_S = 30.0
# How long after an update a look may still show what was there before it.
STALE_S = 60.0

_CONFLICT = 409
_TERMINAL = (SUCCEEDED, FAILED)
_RERUN = "run the same command again: it continues with what is there"
_RERUN_REGION = f"{_RERUN}; where it fails again, first remove the region from the version's target regions"


def publish(
    client: ComputeManagementClient, plan: BuildPlan[Settings], built: CloudImage, console: Console, clock: Clock
) -> Published:
    """`made` counts the regions that had no replica before, or too few copies."""
    settings = plan.settings
    regions = tuple(dict.fromkeys(region_key(name) for name in [settings.location, *settings.publish.regions]))
    work = _Publishing(
        *(client, definition_of(settings), built.id.rpartition("/")[2], regions, settings.publish.replicas),
        *(console, clock),
    )
    version, made = work.replicate(work.settle(work.is_settled, "looking at {}"))
    name = f"{work.definition}/{work.name}"
    images = tuple(CloudImage(version.id or built.id, region, name, "available") for region in regions)
    return Published(images, work.name, made)


@dataclasses.dataclass(frozen=True)
class _Publishing:
    client: ComputeManagementClient
    definition: Definition
    name: str
    regions: tuple[str, ...]
    copies: int
    console: Console
    clock: Clock

    @property
    def label(self) -> str:
        return f"{self.definition}/{self.name}"

    def missing(self, version: GalleryImageVersion) -> list[str]:
        """The wanted regions that are no target yet, that have too few copies, or whose replica is not complete."""
        copies = {region_key(target.name): target.regional_replica_count or 1 for target in _targets(version)}
        replicas = replication(version)
        return [
            region
            for region in self.regions
            if copies.get(region, 0) < self.copies or replica_of(replicas, region).state != COMPLETED
        ]

    def is_visible(self, version: GalleryImageVersion) -> bool:
        profile = version.publishing_profile
        return version.provisioning_state == SUCCEEDED and not (profile and profile.exclude_from_latest)

    def is_settled(self, version: GalleryImageVersion) -> bool:
        return version.provisioning_state in _TERMINAL

    def is_done(self, version: GalleryImageVersion) -> bool:
        """Not merely accepted: a look right after the update may still show the version as it was."""
        if version.provisioning_state != SUCCEEDED:
            return self.is_settled(version)
        return bool(self.failed(version)) or (not self.missing(version) and self.is_visible(version))

    def failed(self, version: GalleryImageVersion) -> dict[str, Replica]:
        replicas = replication(version)
        return {region: replicas[region] for region in self.regions if replica_of(replicas, region).state == FAILED}

    def replicate(self, version: GalleryImageVersion) -> tuple[GalleryImageVersion, int]:
        """The version as the plan wants it, and how many regions this run asked for."""
        left = ATTEMPTS
        while (missing := self.missing(version)) or not self.is_visible(version):
            self.check_bytes(version)
            left -= 1
            with explained(f"replicating {self.label}", PublishError):
                updated = self.update(version, may_fail=left > 0)
            if updated:
                return self.settle_update(version, missing), len(missing)
            # Another run's update, or Azure's own trouble: what is there after it decides.
            self.clock.pause(ATTEMPT_PAUSE_S)
            version = self.settle(self.is_settled, "waiting for another update of {}")
        return version, 0

    def settle_update(self, before: GalleryImageVersion, missing: list[str]) -> GalleryImageVersion:
        """Wait until the update is done; a failure that was there before it counts once Azure has had time."""
        asked, old = self.clock.now(), (before.provisioning_state, replication(before))

        def is_over(version: GalleryImageVersion) -> bool:
            is_new = (version.provisioning_state, replication(version)) != old or self.clock.now() - asked >= STALE_S
            return self.is_done(version) and (is_new or not self.has_failed(version))

        version = self.settle(is_over, f"replicating {{}} to {', '.join(missing) or 'no further region'}")
        if self.has_failed(version):
            raise PublishError(f"{self.label} was not replicated: {reason_in(version)}", hint=_RERUN_REGION)
        return version

    def has_failed(self, version: GalleryImageVersion) -> bool:
        return version.provisioning_state == FAILED or bool(self.failed(version))

    def check_bytes(self, version: GalleryImageVersion) -> None:
        """A version that failed before it had any bytes stays so, whatever is asked of it."""
        if version.provisioning_state == FAILED and not has_bytes(version, self.regions[0]):
            raise PublishError(
                f"{self.label} ended Failed and holds no image: {reason_in(version)}",
                hint=f"delete it: `{self.definition.deletion(self.name)}`, and build the image again",
            )

    def settle(self, is_over: Callable[[GalleryImageVersion], bool], doing: str) -> GalleryImageVersion:
        """Look until it is over; the progress is the replicas' own, in percent of all."""
        from azure.core.exceptions import ResourceNotFoundError

        shown = 0

        def look() -> GalleryImageVersion | None:
            nonlocal shown
            version = self.definition.version(self.client, self.name)
            replicas = replication(version)
            progress = sum(replicas[region].progress for region in self.regions if region in replicas)
            advance(max(progress - shown, 0))
            shown = max(progress, shown)
            return version if is_over(version) else None

        with (
            self.console.task(doing.format(self.label), 100 * len(self.regions)) as advance,
            explained(f"asking about {self.label}", PublishError),
        ):
            try:
                version = wait_for(look, limit_s=LIMIT_S, clock=self.clock, passes=is_passing)
            except ResourceNotFoundError as error:
                raise PublishError(
                    f"{self.label} was deleted after it was built",
                    hint="build the image again: the same command finds that it is gone",
                ) from error
            if version is None:
                raise PublishError(f"{self.label} was not replicated within {LIMIT_S / 60:g} minutes", hint=_RERUN)
        return version

    def update(self, version: GalleryImageVersion, *, may_fail: bool) -> bool:
        """Put back what was read, with regions and copies added: everything else of the version stays as it is.

        Whether Azure took it: with `may_fail`, an update that may succeed later is not an error.
        """
        from azure.core.exceptions import HttpResponseError
        from azure.mgmt.compute.models import GalleryImageVersionPublishingProfile, TargetRegion

        targets = _targets(version)
        profile = version.publishing_profile or GalleryImageVersionPublishingProfile()
        storage = next((target.storage_account_type for target in targets), None) or profile.storage_account_type
        there = {region_key(target.name) for target in targets}
        new = [
            TargetRegion(name=region, regional_replica_count=self.copies, storage_account_type=storage)
            for region in self.regions
            if region not in there
        ]
        for target in targets:
            # Never fewer: somebody may have added copies for a larger cluster.
            if region_key(target.name) in self.regions:
                target.regional_replica_count = max(target.regional_replica_count or 1, self.copies)
        profile.target_regions = [*targets, *new]
        profile.exclude_from_latest = False
        version.publishing_profile = profile
        # The builder's, which Packer's plugin gives the version too.
        version.tags = {key: value for key, value in (version.tags or {}).items() if key != EXPIRES_AT}
        try:
            # polling=False: settle() looks at the version itself, which a later run can do as well.
            self.client.gallery_image_versions.begin_create_or_update(
                self.definition.resource_group,
                self.definition.gallery,
                self.definition.name,
                self.name,
                version,
                polling=False,
            )
        except HttpResponseError as error:
            if not may_fail or not (error.status_code == _CONFLICT or is_passing(error)):
                raise
            return False
        return True


def _targets(version: GalleryImageVersion) -> list[TargetRegion]:
    profile = version.publishing_profile
    return list((profile.target_regions if profile else None) or [])
