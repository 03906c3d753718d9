"""Our own images in one region, recognised by their tags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypedDict

from imagegen.providers import CloudImage
from imagegen.providers.tags import IMAGE_ID, REJECTED, REPORT, is_same_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef, TagTypeDef

    from imagegen.providers.aws.settings import Settings

AVAILABLE: Final = "available"
PENDING: Final = "pending"
IMDS_V2: Final = "v2.0"


class Tagged(TypedDict, total=False):
    """What each of EC2's answers about a thing has."""

    Tags: list[TagTypeDef]


def images_of(ec2: EC2Client, image_id: str, labels: Mapping[str, str]) -> list[ImageTypeDef]:
    """All images of this identity with exactly these labels, in whatever state; newest first."""
    found = ec2.describe_images(Owners=["self"], Filters=[{"Name": f"tag:{IMAGE_ID}", "Values": [image_id]}])["Images"]
    same = [image for image in found if is_same_image(tags_of(image), image_id, labels)]
    return sorted(same, key=lambda image: (image["CreationDate"], image["ImageId"]), reverse=True)


def ami_of(artifact: str, region: str) -> str | None:
    """The AMI of this region among those that an artifact of Packer's plugin names: `us-east-1:ami-1,us-west-2:ami-2`.

    In the plugin's text for people a blank follows the colon.
    """
    named = re.search(rf"(?<![\w-]){re.escape(region)}: ?(ami-[0-9a-f]+)", artifact)
    return named[1] if named else None


def has_encrypted_disks(image: ImageTypeDef) -> bool:
    """Whether it is the image that was asked to be encrypted, and not the bare one that Packer encrypts a copy of.

    That one wears the same tags under a name of its own. What a pending image's disks will be is not told yet.
    """
    disks = [mapping["Ebs"] for mapping in image.get("BlockDeviceMappings", []) if "Ebs" in mapping]
    return tags_of(image).get("Name") == image["Name"] and (
        all(disk.get("Encrypted") for disk in disks) or image["State"] == PENDING
    )


def snapshots_of(image: ImageTypeDef) -> list[str]:
    """The snapshots that an image names."""
    disks = [mapping.get("Ebs", {}) for mapping in image.get("BlockDeviceMappings", [])]
    return [disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")]


def requires_tokens(image: ImageTypeDef) -> bool:
    return image.get("ImdsSupport") == IMDS_V2


def as_planned(image: ImageTypeDef, settings: Settings) -> bool:
    """What EC2 keeps beside the disk: an image of the same identity may have been made before it was asked for."""
    if settings.encryption and not has_encrypted_disks(image):
        return False
    return requires_tokens(image) or not settings.require_imds_tokens


def newest_usable(images: Iterable[ImageTypeDef]) -> ImageTypeDef | None:
    """The newest that can be used or will be, a rejected one last; a failed one is no image."""
    usable = [image for image in images if image["State"] in (AVAILABLE, PENDING)]
    # Sorting keeps the order of the others.
    return next(iter(sorted(usable, key=lambda image: tags_of(image).get(REPORT) == REJECTED)), None)


def tags_of(resource: Tagged) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", [])}


def cloud_image(image: ImageTypeDef, region: str) -> CloudImage:
    return CloudImage(image["ImageId"], region, image["Name"], image["State"], tags_of(image).get(REPORT, ""))
