"""Copies of a built AMI in the regions of a plan: looked for first, then made, then waited for.

A copy wears its source's tags from its first moment, so a run that was cut off is continued by the next one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from imagegen.errors import ImagegenError, PublishError
from imagegen.plan.model import canonical
from imagegen.providers import CloudImage, Published
from imagegen.providers.aws.client import explained
from imagegen.providers.aws.images import AVAILABLE, PENDING, cloud_image, images_of, newest_usable, tags_of
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
        usable = newest_usable(known)
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
            )
        return _Copy(CloudImage(made["ImageId"], region, name, PENDING), is_new=True)

    def finish(self, copy: _Copy) -> CloudImage:
        if copy.image.state == AVAILABLE:
            return copy.image
        region = copy.image.region
        label = f"waiting for {copy.image.id} in {region}"
        image = _wait_until_available(self.clients(region), copy.image, COPY_LIMIT_S, label, self.console, self.clock)
        return cloud_image(image, region)

    def _tags(self) -> Sequence[TagTypeDef]:
        # Names that begin with `aws:` are the cloud's own, and refused from others.
        return [
            {"Key": key, "Value": value} for key, value in tags_of(self.source).items() if not key.startswith("aws:")
        ]

    def _token(self, region: str, failed: Sequence[ImageTypeDef]) -> str:
        """The same for two runs that race: EC2 makes one copy. Another after a failed copy, or EC2 gives that back."""
        parts = [self.plan.image_id, self.source["ImageId"], region, dict(self.run.labels)]
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
