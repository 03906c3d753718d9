"""Copies of a built AMI in the regions of a plan: looked for first, then made, then waited for.

A copy wears its source's tags from its first moment, so a run that was cut off is continued by the next one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from imagegen.errors import ImagegenError, PublishError
from imagegen.plan.model import canonical
from imagegen.providers import CloudImage, Published
from imagegen.providers.aws.client import explained
from imagegen.providers.aws.images import (
    AVAILABLE,
    IMDS_V2,
    PENDING,
    cloud_image,
    has_encrypted_disks,
    images_of,
    newest_usable,
    requires_tokens,
    tags_of,
)
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef, TagTypeDef

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import Run
    from imagegen.providers.aws.client import Clients

SOURCE_LIMIT_S = 3600.0
COPY_LIMIT_S = 2 * 3600.0
# EC2 answers about an image that it has only just promised; for so long, one that is not there is late, not gone.
APPEARING_LIMIT_S = 120.0

_RERUN = "run the same command again: it continues with what is there"


def publish(
    clients: Clients, plan: BuildPlan, built: CloudImage, run: Run, console: Console, clock: Clock
) -> Published:
    """Every copy is started before the first is waited for; one that fails stops none of the others."""
    source = _wait_until_available(
        clients(built.region), built, SOURCE_LIMIT_S, f"looking at {built.id}", console, clock
    )
    publishing = _Publishing(clients, plan, source, built.region, run, console, clock)
    regions = [region for region in dict.fromkeys(plan.publish.settings["regions"]) if region != built.region]
    copies: list[_Copy] = []
    wrong: list[ImagegenError] = []
    for region in regions:
        try:
            copies.append(publishing.find_or_start(region))
        except ImagegenError as error:
            wrong.append(error)
    images = [cloud_image(source, built.region)]
    for copy in copies:
        try:
            images.append(publishing.finish(copy))
        except ImagegenError as error:
            wrong.append(error)
    _raise_all(wrong)
    return Published(tuple(images), source["Name"], sum(copy.is_new for copy in copies))


@dataclasses.dataclass(frozen=True)
class _Copy:
    image: CloudImage
    is_new: bool


@dataclasses.dataclass(frozen=True)
class _Publishing:
    clients: Clients
    plan: BuildPlan
    source: ImageTypeDef
    source_region: str
    run: Run
    console: Console
    clock: Clock

    def find_or_start(self, region: str) -> _Copy:
        ec2 = self.clients(region)
        with explained(f"looking for {self.source['Name']} in {region}", PublishError):
            known = images_of(ec2, self.plan.image_id, self.run.labels)
        usable = newest_usable(image for image in known if not self._encrypts() or has_encrypted_disks(image))
        if usable is not None:
            return _Copy(cloud_image(usable, region), is_new=False)
        name = self.source["Name"]
        self.console.say(f"copying {name} to {region}")
        with explained(f"copying {name} to {region}", PublishError):
            made = ec2.copy_image(
                SourceImageId=self.source["ImageId"],
                SourceRegion=self.source_region,
                Name=name,
                Description=self.source.get("Description")
                or f"Copy of {self.source['ImageId']} from {self.source_region}",
                ClientToken=self._token(region, known),
                TagSpecifications=[
                    {"ResourceType": "image", "Tags": self._tags()},
                    {"ResourceType": "snapshot", "Tags": self._tags()},
                ],
                **self._encryption(region),
            )
        return _Copy(CloudImage(made["ImageId"], region, name, PENDING), is_new=True)

    def finish(self, copy: _Copy) -> CloudImage:
        tokens = self.plan.build.settings["require_imds_tokens"]
        if copy.image.state == AVAILABLE and not tokens:
            return copy.image
        region = copy.image.region
        ec2 = self.clients(region)
        label = f"waiting for {copy.image.id} in {region}"
        image = _wait_until_available(ec2, copy.image, COPY_LIMIT_S, label, self.console, self.clock)
        if tokens and not requires_tokens(image):
            # Whether a copy takes this over from its source is EC2's to decide; EC2 never takes it back.
            with explained(f"requiring session tokens of {copy.image.id} in {region}", PublishError):
                ec2.modify_image_attribute(ImageId=copy.image.id, ImdsSupport={"Value": IMDS_V2})
        return cloud_image(image, region)

    def _encrypts(self) -> bool:
        return self.plan.publish.settings["encryption"] is not None

    def _encryption(self, region: str) -> dict[str, Any]:
        if not self._encrypts():
            return {}
        key = self.plan.publish.settings["encryption"]["kms_keys"].get(region)
        return {"Encrypted": True} | ({"KmsKeyId": key} if key else {})

    def _tags(self) -> Sequence[TagTypeDef]:
        # Names that begin with `aws:` are the cloud's own, and refused from others.
        return [
            {"Key": key, "Value": value} for key, value in tags_of(self.source).items() if not key.startswith("aws:")
        ]

    def _token(self, region: str, failed: Sequence[ImageTypeDef]) -> str:
        """The same for two runs that race: EC2 makes one copy. Another after a failed copy, or EC2 gives that back."""
        parts = [self.plan.image_id, self.source["ImageId"], region, dict(self.run.labels), self._encryption(region)]
        return hashlib.sha256(canonical([*parts, sorted(image["ImageId"] for image in failed)])).hexdigest()


def _wait_until_available(
    ec2: EC2Client, image: CloudImage, limit_s: float, label: str, console: Console, clock: Clock
) -> ImageTypeDef:
    began = clock.now()
    place = f"{image.id} in {image.region}"

    def look() -> ImageTypeDef | None:
        with explained(f"asking about {place}", PublishError):
            # By filter, not by ImageIds: an id that EC2 does not know yet is then no error.
            found = ec2.describe_images(Owners=["self"], Filters=[{"Name": "image-id", "Values": [image.id]}])["Images"]
        if not found and clock.now() - began >= APPEARING_LIMIT_S:
            raise PublishError(f"{place} is not there", hint=_RERUN)
        if not found or found[0]["State"] == PENDING:
            return None
        if found[0]["State"] != AVAILABLE:
            raise _failed(found[0], place)
        return found[0]

    with console.task(label, None):
        available = wait_for(look, limit_s=limit_s, clock=clock)
        if available is None:
            raise PublishError(f"{place} was not available within {limit_s / 60:g} minutes", hint=_RERUN)
    return available


def _failed(image: ImageTypeDef, place: str) -> PublishError:
    reason = image.get("StateReason", {})
    told = ": ".join(part for part in (reason.get("Code"), reason.get("Message")) if part) or "without a reason"
    return PublishError(
        f"{image.get('Name', 'image')}, {place}, is {image['State']}: {told}",
        hint=f"deregister it, and {_RERUN}",
    )


def _raise_all(wrong: Sequence[ImagegenError]) -> None:
    if not wrong:
        return
    first = wrong[0]
    details = [*first.details, *(line for error in wrong[1:] for line in (error.message, *error.details))]
    raise type(first)(first.message, hint=first.hint, details=details) from first
