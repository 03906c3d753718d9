"""Copies a built AMI to the regions of a plan. Existing copies are kept.

A copy has the tags of its source from the start, so that the next run continues an interrupted one. EC2 returns the
same image for the same client token, even after that image was deregistered; it shows a new image late; and it allows a
name only once (see its API reference on idempotency and error codes).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from imagegen.base.canonical import digest
from imagegen.base.errors import ImagegenError, PublishError
from imagegen.providers import CloudImage, Published, RunFacts
from imagegen.providers.aws.client import Clients
from imagegen.providers.aws.faults import error_code, explain_errors, is_transient, is_unknown_host
from imagegen.providers.aws.images import (
    AVAILABLE,
    PENDING,
    RERUN,
    cloud_image,
    has_encrypted_disks,
    images_of,
    missing_source,
    newest_usable,
    requires_tokens,
    snapshots_of,
    tags_of,
    wait_until_available,
)
from imagegen.providers.aws.settings import IMDS_V2, Settings
from imagegen.providers.tags import EXPIRES_AT, NEVER, RUN_ID, copied_tags, is_same_image, run_ids, shared_id
from imagegen.providers.time_limits import Clock, wait_for

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import (
        CopyImageRequestTypeDef,
        ImageTypeDef,
        TagTypeDef,
    )

    from imagegen.base.console import Console
    from imagegen.plan.model import BuildPlan

# Longer than FAILING_LIMIT_S, so that the error has the reason instead of the time limit.
REQUEST_LIMIT_S = 3600.0

_NAME_TAKEN = "InvalidAMIName.Duplicate"
_TOO_MANY_COPIES = "ResourceLimitExceeded"
_NO_SOURCE = frozenset({"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"})


def publish(
    clients: Clients, plan: BuildPlan[Settings], built: CloudImage, run: RunFacts, console: Console, clock: Clock
) -> Published:
    """Start all copies before waiting for the first. An error of one copy does not stop the others."""
    source = Source(_wait_for_source(clients, plan, built, run, console, clock), built.region, plan, run)
    _keep(clients(built.region), source.image)
    images, errors = [cloud_image(source.image, built.region)], dict[str, ImagegenError]()
    regions = [region for region in dict.fromkeys(plan.settings.publish.regions) if region != built.region]
    copies = [Copy(clients, region, source, console, clock) for region in regions]
    for copy in copies:
        try:
            copy.start()
        except ImagegenError as error:
            errors[copy.region] = error
    for copy in copies:
        try:
            if copy.region not in errors:
                images.append(copy.finish())
        except ImagegenError as error:
            errors[copy.region] = error
    if errors:
        raise _combined(*errors.values()) from next(iter(errors.values()))
    return Published(tuple(images), source.name, sum(copy.is_new for copy in copies))


def _wait_for_source(
    clients: Clients, plan: BuildPlan[Settings], built: CloudImage, run: RunFacts, console: Console, clock: Clock
) -> ImageTypeDef:
    ec2 = clients(built.region)
    with (
        console.task(f"reading {built.id}", None),
        explain_errors(f"reading {built.id} in {built.region}", PublishError),
    ):
        image = wait_until_available(
            ec2, built.id, built.region, plan.publish_timeout_s, clock, lambda pending: _share(ec2, pending, run)
        )
    if image is None:
        raise missing_source(built.id, built.region)
    return image


def _share(ec2: EC2Client, image: ImageTypeDef, run: RunFacts) -> None:
    """Tag a pending image of another run with this run too, so that no janitor removes it when the other run ends."""
    tags = tags_of(image)
    expires_at = tags.get(EXPIRES_AT, NEVER)
    if expires_at != NEVER and run.id not in run_ids(tags[RUN_ID]):
        expiry: TagTypeDef = {"Key": EXPIRES_AT, "Value": max(expires_at, run.expires_at)}
        runs: TagTypeDef = {"Key": RUN_ID, "Value": shared_id(tags[RUN_ID], run.id)}
        ec2.create_tags(Resources=[image["ImageId"]], Tags=[expiry, runs])


def _keep(ec2: EC2Client, image: ImageTypeDef) -> None:
    """Remove the expiry of an image that Packer did not tag before it ended."""
    if tags_of(image).get(EXPIRES_AT, NEVER) != NEVER:
        with explain_errors(f"tagging {image['ImageId']}", PublishError):
            ec2.create_tags(
                Resources=[image["ImageId"], *snapshots_of(image)], Tags=[{"Key": EXPIRES_AT, "Value": NEVER}]
            )


def _combined(first: ImagegenError, *others: ImagegenError) -> PublishError:
    details = list(first.details)
    for error in others:
        details += [error.message, *([f"hint: {error.hint}"] if error.hint != first.hint else []), *error.details]
    return PublishError(first.message, hint=first.hint, details=details)


@dataclasses.dataclass(frozen=True)
class Source:
    """The image to copy, with its plan and run."""

    image: ImageTypeDef
    region: str
    plan: BuildPlan[Settings]
    run: RunFacts

    @property
    def name(self) -> str:
        return self.image["Name"]

    @property
    def tags(self) -> Sequence[TagTypeDef]:
        # AWS rejects names that begin with `aws:`.
        tags = sorted(copied_tags(tags_of(self.image)).items())
        return [{"Key": key, "Value": value} for key, value in tags if not key.startswith("aws:")]


@dataclasses.dataclass
class Copy:
    """One copy. All copies are started with `start` before the first call of `finish`."""

    clients: Clients
    region: str
    source: Source
    console: Console
    clock: Clock
    is_new: bool = False
    _image: ImageTypeDef | None = None
    _gone: list[str] = dataclasses.field(default_factory=list)

    def start(self) -> None:
        """Make one attempt. After a transient error, `finish` tries again, so that other regions need not wait."""
        with self._explain_errors(self._copying):
            try:
                self._image = self._find_or_start()
            except Exception as error:
                if not self._is_transient(error):
                    raise
                self.console.say(f"{self._copying} starts later: {error_code(error) or error}")

    def finish(self) -> CloudImage:
        """Wait for the copy, complete its settings, and return it."""
        started = self._image or self._start()
        image = self._wait_for(started)
        if image is None:
            # EC2 returned a copy that was deregistered in the meantime.
            self.console.say(f"{started['ImageId']} in {self.region} no longer exists: starting another copy")
            self._gone.append(started["ImageId"])
            started = self._start()
            image = self._wait_for(started)
        if image is None:
            raise PublishError(f"{started['ImageId']} in {self.region} does not exist", hint=RERUN)
        self._complete(image)
        return cloud_image(image, self.region)

    def _start(self) -> ImageTypeDef:
        with self._explain_errors(self._copying):
            image = wait_for(
                self._find_or_start, limit_s=REQUEST_LIMIT_S, clock=self.clock, is_transient=self._is_transient
            )
        # _find_or_start never returns None.
        return cast("ImageTypeDef", image)

    def _find_or_start(self) -> ImageTypeDef:
        ec2 = self.clients(self.region)
        # A copy has the name of its source, which no other image of this plan has: another build made that one.
        known = [
            image
            for image in images_of(ec2, self.source.plan.image_id, self.source.run.labels)
            if image["Name"] == self.source.name
        ]
        usable = newest_usable(image for image in known if self._is_as_planned(image))
        if usable is not None:
            return usable
        try:
            ami = ec2.copy_image(**self._request(known))["ImageId"]
        except Exception as error:
            if error_code(error) in _NO_SOURCE:
                raise missing_source(self.source.image["ImageId"], self.source.region) from error
            if error_code(error) == _NAME_TAKEN:
                self._check_name(ec2)
            raise
        self.is_new = True
        self.console.say(f"{self._copying} as {ami}")
        return {"ImageId": ami, "State": PENDING}

    def _request(self, known: Sequence[ImageTypeDef]) -> CopyImageRequestTypeDef:
        """The request, with the same token in concurrent runs, so that EC2 makes one copy.

        The token differs where the request differs, because EC2 rejects another request with a known token; and after a
        failed or missing copy, because EC2 would return that one.
        """
        request: CopyImageRequestTypeDef = {
            "SourceImageId": self.source.image["ImageId"],
            "SourceRegion": self.source.region,
            "Name": self.source.name,
            "Description": self.source.image.get("Description")
            or f"Copy of {self.source.image['ImageId']} from {self.source.region}",
            "TagSpecifications": [
                {"ResourceType": "image", "Tags": self.source.tags},
                {"ResourceType": "snapshot", "Tags": self.source.tags},
            ],
        }
        if encryption := self.source.plan.settings.encryption:
            request["Encrypted"] = True
            if key := encryption.region_kms_keys.get(self.region):
                request["KmsKeyId"] = key
        parts = [self.region, dict(request), sorted(image["ImageId"] for image in known)]
        if self._gone:
            parts += [self.source.run.started, self._gone]
        return {**request, "ClientToken": digest(parts)}

    def _check_name(self, ec2: EC2Client) -> None:
        """Raise where an existing image keeps the name. The name of a deregistered image becomes free after a while."""
        for image in ec2.describe_images(Owners=["self"], Filters=[{"Name": "name", "Values": [self.source.name]}])[
            "Images"
        ]:
            is_ours = is_same_image(tags_of(image), self.source.plan.image_id, self.source.run.labels)
            if not (is_ours and self._is_as_planned(image) and newest_usable([image])):
                raise PublishError(
                    f"{self._copying}: {image['ImageId']} ({image['State']}) already has that name there, and is not a "
                    "usable copy of this image",
                    hint=f"deregister {image['ImageId']} in {self.region} if nobody needs it, and {RERUN}",
                )

    def _wait_for(self, started: ImageTypeDef) -> ImageTypeDef | None:
        if started["State"] == AVAILABLE:
            return started
        ami = started["ImageId"]
        with (
            self.console.task(f"waiting for {ami} in {self.region}", None),
            self._explain_errors(f"asking about {ami} in {self.region}"),
        ):
            limit_s = self.source.plan.publish_timeout_s
            return wait_until_available(self.clients(self.region), ami, self.region, limit_s, self.clock)

    def _complete(self, image: ImageTypeDef) -> None:
        """Set the tags and attributes that EC2 did not copy."""
        ami, ec2 = image["ImageId"], self.clients(self.region)
        missing = [tag for tag in self.source.tags if tag["Key"] not in tags_of(image)]
        if self.is_new and missing:
            # Later runs recognise the copy by its tags.
            self._retry(
                f"tagging {ami} in {self.region}",
                lambda: ec2.create_tags(Resources=[ami, *snapshots_of(image)], Tags=missing),
            )
        if self.source.plan.settings.require_imds_tokens and not requires_tokens(image):
            # EC2 may not copy this attribute; it cannot be removed again.
            self._retry(
                f"requiring session tokens of {ami} in {self.region}",
                lambda: ec2.modify_image_attribute(ImageId=ami, ImdsSupport={"Value": IMDS_V2}),
            )

    def _retry(self, doing: str, request: Callable[[], object]) -> None:
        with self._explain_errors(doing):
            wait_for(lambda: (request(),), limit_s=REQUEST_LIMIT_S, clock=self.clock, is_transient=is_transient)

    def _explain_errors(self, doing: str) -> AbstractContextManager[None]:
        return explain_errors(doing, PublishError, copied_to=self.region)

    def _is_transient(self, error: Exception) -> bool:
        return error_code(error) in (_NAME_TAKEN, _TOO_MANY_COPIES) or (
            is_transient(error) and not is_unknown_host(error)
        )

    @property
    def _copying(self) -> str:
        return f"copying {self.source.name} to {self.region}"

    def _is_as_planned(self, image: ImageTypeDef) -> bool:
        return self.source.plan.settings.encryption is None or has_encrypted_disks(image)
