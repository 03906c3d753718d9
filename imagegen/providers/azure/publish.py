"""Replicates a built gallery version to the regions of a plan, and makes it visible in `latest`.

Only the state in Azure counts, so that the next run continues an interrupted one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from imagegen.base.errors import PublishError
from imagegen.providers import CloudImage, Published
from imagegen.providers.azure.failures import explain_errors, is_transient
from imagegen.providers.azure.gallery import (
    COMPLETED,
    FAILED,
    RERUN,
    SUCCEEDED,
    Definition,
    definition_of,
    has_image,
    is_settled,
    reason_in,
    region_key,
    replica_of,
    replication,
)
from imagegen.providers.azure.settings import Settings
from imagegen.providers.tags import EXPIRES_AT
from imagegen.providers.time_limits import Clock, wait_for

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.base.console import Console
    from imagegen.plan.model import BuildPlan

# The attempts of an update that conflicts with another update, and the pause between them.
ATTEMPTS = 5
ATTEMPT_PAUSE_S = 30.0
# For this time after an update, Azure may still return the state before it.
STALE_S = 60.0


def publish(
    client: ComputeManagementClient, plan: BuildPlan[Settings], built: CloudImage, console: Console, clock: Clock
) -> Published:
    """Replicate a version. `made` counts the regions that had no replica or too few copies."""
    settings = plan.settings
    regions = tuple(dict.fromkeys(region_key(name) for name in [settings.location, *settings.publish.regions]))
    work = _Publishing(
        *(client, definition_of(settings), built.id.rpartition("/")[2], regions, settings.publish.replicas),
        *(plan.publish_timeout_s, console, clock),
    )
    version, made = work.replicate(work.settle(is_settled, "reading {}"))
    images = tuple(CloudImage(version.id or built.id, region, work.label, "available") for region in regions)
    return Published(images, work.name, made)


@dataclasses.dataclass(frozen=True)
class _Publishing:
    client: ComputeManagementClient
    definition: Definition
    name: str
    regions: tuple[str, ...]
    copies: int
    limit_s: float
    console: Console
    clock: Clock

    @property
    def label(self) -> str:
        return f"{self.definition}/{self.name}"

    def missing(self, version: GalleryImageVersion) -> list[str]:
        """The regions of the plan without a complete replica, or with too few copies."""
        profile = version.publishing_profile
        copies = {
            region_key(target.name): target.regional_replica_count or 1
            for target in (profile.target_regions if profile else None) or []
        }
        replicas = replication(version)
        return [
            region
            for region in self.regions
            if copies.get(region, 0) < self.copies or replica_of(replicas, region).state != COMPLETED
        ]

    def is_visible(self, version: GalleryImageVersion) -> bool:
        profile = version.publishing_profile
        return version.provisioning_state == SUCCEEDED and not (profile and profile.exclude_from_latest)

    def is_done(self, version: GalleryImageVersion) -> bool:
        """Whether the update has ended, successfully or not. A poll right after it may still show the old state."""
        return is_settled(version) and (
            self.has_failed(version) or (not self.missing(version) and self.is_visible(version))
        )

    def has_failed(self, version: GalleryImageVersion) -> bool:
        return version.provisioning_state == FAILED or any(
            replica.state == FAILED and region in self.regions for region, replica in replication(version).items()
        )

    def replicate(self, version: GalleryImageVersion) -> tuple[GalleryImageVersion, int]:
        """Replicate the version, and return it with the number of regions that this run added."""
        left = ATTEMPTS
        while (missing := self.missing(version)) or not self.is_visible(version):
            if version.provisioning_state == FAILED and not has_image(version, self.regions[0]):
                # No update can repair it.
                raise PublishError(
                    f"{self.label} is in state Failed and has no image: {reason_in(version)}",
                    hint=f"delete it: `{self.definition.deletion(self.name)}`, then build the image again",
                )
            left -= 1
            with explain_errors(f"replicating {self.label}", PublishError):
                if self.update(version, may_fail=left > 0):
                    return self.settle_update(version, missing), len(missing)
            # After another run's update or a transient error, the new state decides.
            self.clock.pause(ATTEMPT_PAUSE_S)
            version = self.settle(is_settled, "waiting for another update of {}")
        return version, 0

    def settle_update(self, before: GalleryImageVersion, missing: list[str]) -> GalleryImageVersion:
        """Wait until the update ends. A failure from before the update counts only after STALE_S."""
        started, old = self.clock.now(), (before.provisioning_state, replication(before))

        def is_over(version: GalleryImageVersion) -> bool:
            is_new = (version.provisioning_state, replication(version)) != old or self.clock.now() - started >= STALE_S
            return self.is_done(version) and (is_new or not self.has_failed(version))

        version = self.settle(is_over, f"replicating {{}} to {', '.join(missing) or 'no further region'}")
        if self.has_failed(version):
            raise PublishError(
                f"{self.label} was not replicated: {reason_in(version)}",
                hint=f"{RERUN}; where it fails again, first remove the region from the version's target regions",
            )
        return version

    def settle(self, is_over: Callable[[GalleryImageVersion], bool], doing: str) -> GalleryImageVersion:
        """Poll the version until `is_over`; the progress is the average of the replicas."""
        from azure.core.exceptions import ResourceNotFoundError

        shown = 0

        def poll() -> GalleryImageVersion | None:
            nonlocal shown
            version = self.definition.version(self.client, self.name)
            replicas = replication(version)
            progress = sum(replicas[region].progress for region in self.regions if region in replicas)
            advance(max(progress - shown, 0))
            shown = max(progress, shown)
            return version if is_over(version) else None

        with (
            self.console.task(doing.format(self.label), 100 * len(self.regions)) as advance,
            explain_errors(f"reading {self.label}", PublishError),
        ):
            try:
                version = wait_for(poll, limit_s=self.limit_s, clock=self.clock, is_transient=is_transient)
            except ResourceNotFoundError as error:
                raise PublishError(
                    f"{self.label} was deleted after it was built",
                    hint="run `imagegen build`, which builds the image again",
                ) from error
            if version is None:
                raise PublishError(
                    f"{self.label} was not replicated within the {self.limit_s / 60:g} min of timeouts.publish",
                    hint=f"{RERUN}; raise timeouts.publish, if Azure needs longer",
                )
        return version

    def update(self, version: GalleryImageVersion, *, may_fail: bool) -> bool:
        """Update the version: add regions and copies, and keep all other properties.

        Returns whether Azure accepted the update: with `may_fail`, a conflict or a transient error is not raised.
        """
        from azure.core.exceptions import HttpResponseError
        from azure.mgmt.compute.models import GalleryImageVersionPublishingProfile, TargetRegion

        profile = version.publishing_profile or GalleryImageVersionPublishingProfile()
        targets = {region_key(target.name): target for target in profile.target_regions or []}
        storage = next((target.storage_account_type for target in targets.values()), None)
        for region in self.regions:
            new = TargetRegion(name=region, storage_account_type=storage or profile.storage_account_type)
            target = targets.setdefault(region, new)
            # Never fewer: an operator may have added copies for a larger cluster.
            target.regional_replica_count = max(target.regional_replica_count or 1, self.copies)
        profile.target_regions = list(targets.values())
        profile.exclude_from_latest = False
        version.publishing_profile = profile
        # Packer's plugin sets the expiry of the builder on the version too.
        version.tags = {key: value for key, value in (version.tags or {}).items() if key != EXPIRES_AT}
        try:
            # polling=False: settle() polls the version itself, as a later run can.
            self.client.gallery_image_versions.begin_create_or_update(
                *self.definition, self.name, version, polling=False
            )
        except HttpResponseError as error:
            if not may_fail or not (error.status_code == 409 or is_transient(error)):
                raise
            return False
        return True
