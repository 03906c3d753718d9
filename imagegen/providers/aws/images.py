"""Finds and describes imagegen's images in one region by their tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

from imagegen.providers import CloudImage
from imagegen.providers.aws.settings import Settings
from imagegen.providers.tags import IMAGE_ID, REJECTED, REPORT, is_same_image

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef, TagTypeDef

AVAILABLE: Final = "available"
PENDING: Final = "pending"
IMDS_V2: Final = "v2.0"


class Tagged(TypedDict, total=False):
    """The tags in each of EC2's descriptions of a resource."""

    Tags: list[TagTypeDef]


def images_of(ec2: EC2Client, image_id: str, labels: Mapping[str, str]) -> list[ImageTypeDef]:
    """The images with this identity and exactly these labels, in any state; newest first."""
    images = ec2.describe_images(Owners=["self"], Filters=[{"Name": f"tag:{IMAGE_ID}", "Values": [image_id]}])["Images"]
    same = [image for image in images if is_same_image(tags_of(image), image_id, labels)]
    return sorted(same, key=lambda image: (image["CreationDate"], image["ImageId"]), reverse=True)


def ami_of(artifact: str, region: str) -> str | None:
    """The AMI of a region in an artifact of Packer's plugin: `us-east-1:ami-1,us-west-2:ami-2`.

    The plugin's output for people has a blank after the colon.
    """
    named = re.search(rf"(?<![\w-]){re.escape(region)}: ?(ami-[0-9a-f]+)", artifact)
    return named[1] if named else None


def has_encrypted_disks(image: ImageTypeDef) -> bool:
    """Whether an image is the encrypted one, and not the temporary image of which Packer makes an encrypted copy.

    The temporary image has the same tags, but another name. EC2 does not show yet whether a pending image is encrypted.
    """
    disks = [mapping["Ebs"] for mapping in image.get("BlockDeviceMappings", []) if "Ebs" in mapping]
    return tags_of(image).get("Name") == image["Name"] and (
        all(disk.get("Encrypted") for disk in disks) or image["State"] == PENDING
    )


def snapshots_of(image: ImageTypeDef) -> list[str]:
    """The snapshots of an image."""
    disks = [mapping.get("Ebs", {}) for mapping in image.get("BlockDeviceMappings", [])]
    return [disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")]


def requires_tokens(image: ImageTypeDef) -> bool:
    return image.get("ImdsSupport") == IMDS_V2


def is_as_planned(image: ImageTypeDef, settings: Settings) -> bool:
    """Whether encryption and IMDS are as in the settings, which may have changed since the image was built."""
    if settings.encryption and not has_encrypted_disks(image):
        return False
    return requires_tokens(image) or not settings.require_imds_tokens


def newest_usable(images: Iterable[ImageTypeDef]) -> ImageTypeDef | None:
    """The newest available or pending image; an image with a rejected report only where there is no other."""
    usable = [image for image in images if image["State"] in (AVAILABLE, PENDING)]
    # The sort is stable.
    return next(iter(sorted(usable, key=lambda image: tags_of(image).get(REPORT) == REJECTED)), None)


def tags_of(resource: Tagged) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", [])}


def cloud_image(image: ImageTypeDef, region: str) -> CloudImage:
    return CloudImage(image["ImageId"], region, image["Name"], image["State"], tags_of(image).get(REPORT, ""))
