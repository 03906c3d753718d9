"""Our own images in one region, recognised by their tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.providers import CloudImage
from imagegen.providers.tags import IMAGE_ID, is_same_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

AVAILABLE = "available"
PENDING = "pending"


def images_of(ec2: EC2Client, image_id: str, labels: Mapping[str, str]) -> list[ImageTypeDef]:
    """All images of this identity with exactly these labels, in whatever state; newest first."""
    found = ec2.describe_images(Owners=["self"], Filters=[{"Name": f"tag:{IMAGE_ID}", "Values": [image_id]}])["Images"]
    same = [image for image in found if is_same_image(tags_of(image), image_id, labels)]
    return sorted(same, key=lambda image: (image["CreationDate"], image["ImageId"]), reverse=True)


def newest_usable(images: Iterable[ImageTypeDef]) -> ImageTypeDef | None:
    """The newest that can be used or will be; a failed one is no image."""
    return next((image for image in images if image["State"] in (AVAILABLE, PENDING)), None)


def tags_of(image: ImageTypeDef) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in image.get("Tags", [])}


def cloud_image(image: ImageTypeDef, region: str) -> CloudImage:
    return CloudImage(image["ImageId"], region, image["Name"], image["State"])
