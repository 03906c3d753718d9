"""One copy of an AMI in one region: found or started, then waited for, then checked.

What EC2 does that this is made for (its API reference on idempotency and error codes): it answers the same client
token with the same image, even where that was deregistered since; it shows a new image late; it takes a name once.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from imagegen.canonical import digest
from imagegen.errors import PublishError
from imagegen.providers.aws.availability import RERUN, source_is_gone, wait_until_available
from imagegen.providers.aws.client import explained
from imagegen.providers.aws.faults import error_code, is_unknown_host, may_pass
from imagegen.providers.aws.images import (
    AVAILABLE,
    IMDS_V2,
    PENDING,
    cloud_image,
    has_encrypted_disks,
    images_of,
    newest_usable,
    requires_tokens,
    snapshots_of,
    tags_of,
)
from imagegen.providers.tags import copied_tags, is_same_image
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import (
        AttributeValueTypeDef,
        CopyImageRequestTypeDef,
        FilterTypeDef,
        ImageTypeDef,
        TagTypeDef,
    )

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Run
    from imagegen.providers.aws.client import Clients
    from imagegen.providers.aws.settings import Settings

COPY_LIMIT_S = 2 * 3600.0
# Longer than anything that is waited out, so that the reason is told and not that time is up.
REQUEST_LIMIT_S = 3600.0

_NAME_TAKEN = "InvalidAMIName.Duplicate"
_TOO_MANY_COPIES = "ResourceLimitExceeded"
_NO_SOURCE = frozenset({"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"})


@dataclasses.dataclass(frozen=True)
class Source:
    """The image that is copied, and whose it is."""

    image: ImageTypeDef
    region: str
    plan: BuildPlan[Settings]
    run: Run

    @property
    def name(self) -> str:
        return self.image["Name"]

    @property
    def tags(self) -> Sequence[TagTypeDef]:
        # Names that begin with `aws:` are the cloud's own, and refused from others.
        own = {key: value for key, value in copied_tags(tags_of(self.image)).items() if not key.startswith("aws:")}
        return [{"Key": key, "Value": value} for key, value in sorted(own.items())]


@dataclasses.dataclass
class Copy:
    """Every copy of an image is begun with `start` before the first is ended with `finish`."""

    clients: Clients
    region: str
    source: Source
    console: Console
    clock: Clock
    is_new: bool = False
    _image: ImageTypeDef | None = None
    _gone: list[str] = dataclasses.field(default_factory=list)

    def start(self) -> None:
        """One attempt. Where it fails for a reason that passes, `finish` goes on, so that other regions begin first."""
        with self._explained(self._copying):
            try:
                self._image = self._find_or_start()
            except Exception as error:
                if not self._passes(error):
                    raise
                reason = error_code(error) or error
                self.console.say(f"{self._copying} begins later: {reason}")

    def finish(self) -> CloudImage:
        """The copy, available and as the plan wants it."""
        begun = self._image or self._start()
        image = self._available(begun)
        if image is None:
            # EC2 answered with a copy that was deregistered since.
            self.console.say(f"{begun['ImageId']} in {self.region} is not there: another copy is made")
            self._gone.append(begun["ImageId"])
            begun = self._start()
            image = self._available(begun)
        if image is None:
            raise PublishError(f"{begun['ImageId']} in {self.region} is not there", hint=RERUN)
        self._settle(image)
        return cloud_image(image, self.region)

    def _start(self) -> ImageTypeDef:
        with self._explained(self._copying):
            found = wait_for(self._find_or_start, limit_s=REQUEST_LIMIT_S, clock=self.clock, passes=self._passes)
        # An attempt has a result or an error.
        return cast("ImageTypeDef", found)

    def _find_or_start(self) -> ImageTypeDef:
        ec2 = self.clients(self.region)
        known = images_of(ec2, self.source.plan.image_id, self.source.run.labels)
        usable = newest_usable(image for image in known if self._is_as_planned(image))
        if usable is not None:
            return usable
        try:
            made = ec2.copy_image(**self._request(known))
        except Exception as error:
            if error_code(error) in _NO_SOURCE:
                raise source_is_gone(self.source.image["ImageId"], self.source.region) from error
            if error_code(error) == _NAME_TAKEN:
                self._check_name(ec2)
            raise
        self.is_new = True
        self.console.say(f"{self._copying} as {made['ImageId']}")
        return {"ImageId": made["ImageId"], "State": PENDING}

    def _request(self, known: Sequence[ImageTypeDef]) -> CopyImageRequestTypeDef:
        """The token is the same for two runs that race: EC2 makes one copy.

        It is another one where anything else is asked for, which EC2 refuses under a token that it knows; and after a
        copy that failed or is gone, which EC2 would give back.
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
        """The name of a deregistered image is free again after a while; that of an image that is shown is not."""
        named: Sequence[FilterTypeDef] = [{"Name": "name", "Values": [self.source.name]}]
        for image in ec2.describe_images(Owners=["self"], Filters=named)["Images"]:
            is_ours = is_same_image(tags_of(image), self.source.plan.image_id, self.source.run.labels)
            if not (is_ours and self._is_as_planned(image) and newest_usable([image])):
                raise PublishError(
                    f"{self._copying}: {image['ImageId']} ({image['State']}) has that name there, and is not a copy of "
                    "this image that can be used",
                    hint=f"deregister {image['ImageId']} in {self.region} if nobody needs it, and {RERUN}",
                )

    def _available(self, begun: ImageTypeDef) -> ImageTypeDef | None:
        if begun["State"] == AVAILABLE:
            return begun
        ami = begun["ImageId"]
        with (
            self.console.task(f"waiting for {ami} in {self.region}", None),
            self._explained(f"asking about {ami} in {self.region}"),
        ):
            return wait_until_available(self.clients(self.region), ami, self.region, COPY_LIMIT_S, self.clock)

    def _settle(self, image: ImageTypeDef) -> None:
        """What EC2 did not take over, of tags and of what it keeps beside the disk."""
        ami, ec2 = image["ImageId"], self.clients(self.region)
        missing = [tag for tag in self.source.tags if tag["Key"] not in tags_of(image)]
        if self.is_new and missing:
            # Without them no later run would know the copy.
            self._insist(
                f"tagging {ami} in {self.region}",
                lambda: ec2.create_tags(Resources=[ami, *snapshots_of(image)], Tags=missing),
            )
        if self.source.plan.settings.require_imds_tokens and not requires_tokens(image):
            # Whether a copy takes this over from its source is EC2's to decide; EC2 never takes it back.
            demand: AttributeValueTypeDef = {"Value": IMDS_V2}
            self._insist(
                f"requiring session tokens of {ami} in {self.region}",
                lambda: ec2.modify_image_attribute(ImageId=ami, ImdsSupport=demand),
            )

    def _insist(self, doing: str, ask: Callable[[], object]) -> None:
        with self._explained(doing):
            wait_for(lambda: (ask(),), limit_s=REQUEST_LIMIT_S, clock=self.clock, passes=may_pass)

    def _explained(self, doing: str) -> AbstractContextManager[None]:
        return explained(doing, PublishError, copied_to=self.region)

    def _passes(self, error: Exception) -> bool:
        if error_code(error) in (_NAME_TAKEN, _TOO_MANY_COPIES):
            return True
        return may_pass(error) and not is_unknown_host(error)

    @property
    def _copying(self) -> str:
        return f"copying {self.source.name} to {self.region}"

    def _is_as_planned(self, image: ImageTypeDef) -> bool:
        return self.source.plan.settings.encryption is None or has_encrypted_disks(image)
