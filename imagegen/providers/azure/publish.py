"""Replicates a built gallery version to the regions of a plan, and makes it visible in `latest`.

Only the state in Azure counts, so that the next run continues an interrupted one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from imagegen.errors import PublishError
from imagegen.providers import CloudImage, Published
from imagegen.providers.azure.definition import Definition, definition_of
from imagegen.providers.azure.failures import explain_errors, is_transient
from imagegen.providers.azure.gallery import (
    COMPLETED,
    FAILED,
    SUCCEEDED,
    Replica,
    has_image,
    reason_in,
    region_key,
    replica_of,
    replication,
)
from imagegen.providers.azure.settings import Settings
from imagegen.providers.tags import EXPIRES_AT
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion, TargetRegion

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan

# Replication of a Windows image to a far region takes up to an hour on a bad day.
LIMIT_S = 2 * 3600.0
# The attempts of an update that conflicts with another update, and the pause between them.
ATTEMPTS = 5
ATTEMPT_PAUSE_S = 30.0
# For this time after an update, Azure may still return the state before it.
STALE_S = 60.0

_CONFLICT = 409
_TERMINAL = (SUCCEEDED, FAILED)
_RERUN = "run the same command again: it continues, and keeps finished copies"
_RERUN_REGION = f"{_RERUN}; where it fails again, first remove the region from the version's target regions"


def publish(
    client: ComputeManagementClient, plan: BuildPlan[Settings], built: CloudImage, console: Console, clock: Clock
) -> Published:
    """Replicate a version. `made` counts the regions that had no replica or too few copies."""
    settings = plan.settings
    regions = tuple(dict.fromkeys(region_key(name) for name in [settings.location, *settings.publish.regions]))
    work = _Publishing(
        *(client, definition_of(settings), built.id.rpartition("/")[2], regions, settings.publish.replicas),
        *(console, clock),
    )
    version, made = work.replicate(work.settle(work.is_settled, "reading {}"))
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
        """The regions of the plan without a complete replica, or with too few copies."""
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
        """Whether the update has ended, successfully or not. A poll right after it may still show the old state."""
        if version.provisioning_state != SUCCEEDED:
            return self.is_settled(version)
        return bool(self.failed(version)) or (not self.missing(version) and self.is_visible(version))

    def failed(self, version: GalleryImageVersion) -> dict[str, Replica]:
        replicas = replication(version)
        return {region: replicas[region] for region in self.regions if replica_of(replicas, region).state == FAILED}

    def replicate(self, version: GalleryImageVersion) -> tuple[GalleryImageVersion, int]:
        """Replicate the version, and return it with the number of regions that this run added."""
        left = ATTEMPTS
        while (missing := self.missing(version)) or not self.is_visible(version):
            self.check_has_image(version)
            left -= 1
            with explain_errors(f"replicating {self.label}", PublishError):
                is_accepted = self.update(version, may_fail=left > 0)
            if is_accepted:
                return self.settle_update(version, missing), len(missing)
            # After another run's update or a transient error, the new state decides.
            self.clock.pause(ATTEMPT_PAUSE_S)
            version = self.settle(self.is_settled, "waiting for another update of {}")
        return version, 0

    def settle_update(self, before: GalleryImageVersion, missing: list[str]) -> GalleryImageVersion:
        """Wait until the update ends. A failure from before the update counts only after STALE_S."""
        started, old = self.clock.now(), (before.provisioning_state, replication(before))

        def is_over(version: GalleryImageVersion) -> bool:
            is_new = (version.provisioning_state, replication(version)) != old or self.clock.now() - started >= STALE_S
            return self.is_done(version) and (is_new or not self.has_failed(version))

        version = self.settle(is_over, f"replicating {{}} to {', '.join(missing) or 'no further region'}")
        if self.has_failed(version):
            raise PublishError(f"{self.label} was not replicated: {reason_in(version)}", hint=_RERUN_REGION)
        return version

    def has_failed(self, version: GalleryImageVersion) -> bool:
        return version.provisioning_state == FAILED or bool(self.failed(version))

    def check_has_image(self, version: GalleryImageVersion) -> None:
        """Raise for a version that failed without an image, because no update can repair it."""
        if version.provisioning_state == FAILED and not has_image(version, self.regions[0]):
            raise PublishError(
                f"{self.label} is in state Failed and has no image: {reason_in(version)}",
                hint=f"delete it: `{self.definition.deletion(self.name)}`, then build the image again",
            )

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
                version = wait_for(poll, limit_s=LIMIT_S, clock=self.clock, is_transient=is_transient)
            except ResourceNotFoundError as error:
                raise PublishError(
                    f"{self.label} was deleted after it was built",
                    hint="run `imagegen build`, which builds the image again",
                ) from error
            if version is None:
                raise PublishError(f"{self.label} was not replicated within {LIMIT_S / 60:g} minutes", hint=_RERUN)
        return version

    def update(self, version: GalleryImageVersion, *, may_fail: bool) -> bool:
        """Update the version: add regions and copies, and keep all other properties.

        Returns whether Azure accepted the update: with `may_fail`, a conflict or a transient error is not raised.
        """
        from azure.core.exceptions import HttpResponseError
        from azure.mgmt.compute.models import GalleryImageVersionPublishingProfile, TargetRegion

        targets = _targets(version)
        profile = version.publishing_profile or GalleryImageVersionPublishingProfile()
        storage = next((target.storage_account_type for target in targets), None) or profile.storage_account_type
        known = {region_key(target.name) for target in targets}
        new = [
            TargetRegion(name=region, regional_replica_count=self.copies, storage_account_type=storage)
            for region in self.regions
            if region not in known
        ]
        for target in targets:
            # Never fewer: an operator may have added copies for a larger cluster.
            if region_key(target.name) in self.regions:
                target.regional_replica_count = max(target.regional_replica_count or 1, self.copies)
        profile.target_regions = [*targets, *new]
        profile.exclude_from_latest = False
        version.publishing_profile = profile
        # Packer's plugin sets the expiry of the builder on the version too.
        version.tags = {key: value for key, value in (version.tags or {}).items() if key != EXPIRES_AT}
        try:
            # polling=False: settle() polls the version itself, as a later run can.
            self.client.gallery_image_versions.begin_create_or_update(
                self.definition.resource_group,
                self.definition.gallery,
                self.definition.name,
                self.name,
                version,
                polling=False,
            )
        except HttpResponseError as error:
            if not may_fail or not (error.status_code == _CONFLICT or is_transient(error)):
                raise
            return False
        return True


def _targets(version: GalleryImageVersion) -> list[TargetRegion]:
    profile = version.publishing_profile
    return list((profile.target_regions if profile else None) or [])
