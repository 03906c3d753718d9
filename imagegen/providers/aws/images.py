"""Finds base images and imagegen's own images in one region, describes them, and waits until EC2 has finished them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypedDict

from imagegen.base.errors import ConfigError, PublishError, RefusedError
from imagegen.fetch.lock import BaseForm, LockedBase
from imagegen.providers import CloudImage
from imagegen.providers.aws.faults import explain_errors, is_transient
from imagegen.providers.aws.settings import IMDS_V2, OWNER, REGION, Settings
from imagegen.providers.tags import IMAGE_ID, NAME, PREFERENCE, REJECTED, REPORT, RUN_ID, is_same_image, labels_of
from imagegen.providers.time_limits import Clock, wait_for

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import (
        BlockDeviceMappingTypeDef,
        EbsBlockDeviceTypeDef,
        FilterTypeDef,
        ImageTypeDef,
        TagTypeDef,
    )

AVAILABLE: Final = "available"
PENDING: Final = "pending"
DISABLED: Final = "disabled"
# The root device of every Windows AMI; the template sets size and type of this disk.
ROOT_DEVICE = "/dev/sda1"
BASE_FORM = BaseForm(
    identity={"owner": OWNER, "name": r"[A-Za-z0-9()\[\]./'@_ -]{3,128}"},
    place={"region": REGION, "ami_id": r"ami-[0-9a-f]{8,17}"},
)
# EC2 shows a new image late and may hide an image for a moment; after this time without it, the image does not exist.
APPEARING_LIMIT_S = 120.0

RERUN = "run the same command again: it continues, and keeps finished copies"


class Tagged(TypedDict, total=False):
    """The tags in each of EC2's descriptions of a resource."""

    Tags: list[TagTypeDef]


def base_request(settings: Settings, offered: Mapping[str, str]) -> dict[str, str]:
    """The request for the operator's own base image, or for Amazon's, whose name is in the catalogue."""
    own = settings.base_image
    name, owner = (own.name, own.owner) if own else (offered["name"], "amazon")
    return {"region": settings.region, "name": name, "owner": owner}


def look_up_base(ec2: EC2Client, request: Mapping[str, str], settings: Settings) -> LockedBase:
    """Look up the newest base image that matches. Its name is the same in every region, but not its id."""
    label = f"{request['name']} of {request['owner']} in {request['region']}"
    with explain_errors(f"looking up the base image {label}", RefusedError):
        images = ec2.describe_images(
            Owners=[request["owner"]],
            Filters=[{"Name": "name", "Values": [request["name"]]}, {"Name": "state", "Values": ["available"]}],
        )["Images"]
    if not images:
        raise ConfigError(
            f"there is no base image {label}",
            hint="check the region, and that Amazon still offers this Windows release there"
            if request["owner"] == "amazon"
            else "check the region, the name and the owner, and that the owner shares it with this account",
        )
    newest = max(images, key=lambda image: (image["CreationDate"], image["Name"]))
    if (newest.get("Platform"), newest.get("RootDeviceName")) != ("windows", ROOT_DEVICE):
        raise ConfigError(
            f"the base image {newest['Name']}, {newest['ImageId']}, is not Windows with its disk at {ROOT_DEVICE}",
            hint="choose a base image that was made from one of Amazon's",
        )
    plain = [disk["DeviceName"] for disk in newest.get("BlockDeviceMappings", []) if _stays_unencrypted(disk)]
    if settings.encryption and plain:
        raise ConfigError(
            f"disks of the base image {newest['Name']}, {newest['ImageId']}, stay unencrypted: {', '.join(plain)}",
            hint=f"choose a base image with no other disk than {ROOT_DEVICE}, which imagegen encrypts, or with other "
            "disks that are encrypted",
        )
    return LockedBase(
        request=dict(request),
        identity={"owner": request["owner"], "name": newest["Name"]},
        place={"region": request["region"], "ami_id": newest["ImageId"]},
    )


def images_of(ec2: EC2Client, image_id: str, labels: Mapping[str, str]) -> list[ImageTypeDef]:
    """The images with this identity and exactly these labels, in any state; newest first."""
    images = ec2.describe_images(Owners=["self"], Filters=[{"Name": f"tag:{IMAGE_ID}", "Values": [image_id]}])["Images"]
    return sorted(
        (image for image in images if is_same_image(tags_of(image), image_id, labels)),
        key=lambda image: (image["CreationDate"], image["ImageId"]),
        reverse=True,
    )


def rejected_images(ec2: EC2Client, name: str, labels: Mapping[str, str]) -> list[ImageTypeDef]:
    """The images of a config that were rejected, with exactly these labels. They are disabled, if that was allowed."""
    filters: Sequence[FilterTypeDef] = [
        {"Name": f"tag:{NAME}", "Values": [name]},
        {"Name": f"tag:{REPORT}", "Values": [REJECTED]},
    ]
    found = ec2.describe_images(Owners=["self"], Filters=filters, IncludeDisabled=True)["Images"]
    return [image for image in found if labels_of(tags_of(image)) == dict(labels)]


def describe_rejected(image: ImageTypeDef, region: str) -> str:
    """What to know about a rejected image, and how to delete it."""
    ami = image["ImageId"]
    can = "" if image["State"] == DISABLED else ", so clusters can still use it"
    return (
        f"{ami} in {region} was rejected, because the report of its machine was not as planned. It is {image['State']}"
        f"{can}. To delete it: `{deregistration(ami, region)}`"
    )


def deregistration(ami: str, region: str) -> str:
    """The command that deregisters an image and deletes its snapshots."""
    return f"aws ec2 deregister-image --region {region} --image-id {ami} --delete-associated-snapshots"


def ami_of(artifact: str, region: str) -> str | None:
    """The AMI of a region in an artifact of Packer's plugin: `us-east-1:ami-1,us-west-2:ami-2`.

    The plugin's output for people has a blank after the colon.
    """
    named = re.search(rf"(?<![\w-]){re.escape(region)}: ?(ami-[0-9a-f]+)", artifact)
    return named[1] if named else None


def has_encrypted_disks(image: ImageTypeDef) -> bool:
    """Whether all disks of an image are encrypted. EC2 does not show it yet for a pending image."""
    return image["State"] == PENDING or all(disk.get("Encrypted") for disk in _disks(image))


def _stays_unencrypted(disk: BlockDeviceMappingTypeDef) -> bool:
    """Whether a disk of a base image is not encrypted, and the builder does not encrypt it either."""
    return disk.get("DeviceName") != ROOT_DEVICE and "Ebs" in disk and not disk["Ebs"].get("Encrypted")


def snapshots_of(image: ImageTypeDef) -> list[str]:
    """The snapshots of an image."""
    return [disk["SnapshotId"] for disk in _disks(image) if disk.get("SnapshotId")]


def _disks(image: ImageTypeDef) -> list[EbsBlockDeviceTypeDef]:
    return [mapping["Ebs"] for mapping in image.get("BlockDeviceMappings", []) if "Ebs" in mapping]


def requires_tokens(image: ImageTypeDef) -> bool:
    return image.get("ImdsSupport") == IMDS_V2


def is_as_planned(image: ImageTypeDef, settings: Settings) -> bool:
    """Whether encryption and IMDS are as in the settings, which may have changed since the image was built."""
    is_encrypted = not settings.encryption or has_encrypted_disks(image)
    return is_encrypted and (requires_tokens(image) or not settings.require_imds_tokens)


def newest_usable(images: Iterable[ImageTypeDef]) -> ImageTypeDef | None:
    """The newest available or pending image; an image with a rejected report only where there is no other."""
    usable = (image for image in images if image["State"] in (AVAILABLE, PENDING))
    # Of several equal images, min returns the first.
    return min(usable, key=lambda image: PREFERENCE.get(tags_of(image).get(REPORT, ""), 1), default=None)


def tags_of(resource: Tagged) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", [])}


def cloud_image(image: ImageTypeDef, region: str) -> CloudImage:
    tags = tags_of(image)
    state = (image["ImageId"], region, image["Name"], image["State"])
    return CloudImage(*state, tags.get(REPORT, ""), tags.get(RUN_ID, ""))


def wait_until_available(
    ec2: EC2Client,
    ami: str,
    region: str,
    limit_s: float,
    clock: Clock,
    on_pending: Callable[[ImageTypeDef], None] = lambda _: None,
) -> ImageTypeDef | None:
    """Wait for an image, and return it; None where it does not exist. Raises errors of the SDK that are not transient.

    Every poll of a pending image calls `on_pending`.
    """
    place = f"{ami} in {region}"
    last_seen = clock.now()

    def poll() -> list[ImageTypeDef] | None:
        nonlocal last_seen
        image = _describe(ec2, ami)
        if image is None:
            return [] if clock.now() - last_seen >= APPEARING_LIMIT_S else None
        last_seen = clock.now()
        if image["State"] == PENDING:
            on_pending(image)
            return None
        if image["State"] != AVAILABLE:
            raise _failure(image, place)
        return [image]

    images = wait_for(poll, limit_s=limit_s, clock=clock, is_transient=is_transient)
    if images is None:
        raise PublishError(
            f"{place} was not available within the {limit_s / 60:g} min of timeouts.publish",
            hint=f"{RERUN}; raise timeouts.publish, if AWS needs longer",
        )
    return images[0] if images else None


def wait_until_shown(ec2: EC2Client, ami: str, region: str, clock: Clock) -> ImageTypeDef:
    """Wait for an image in any state, and return it. Raises errors of the SDK that are not transient."""
    image = wait_for(lambda: _describe(ec2, ami), limit_s=APPEARING_LIMIT_S, clock=clock, is_transient=is_transient)
    if image is None:
        raise PublishError(f"{ami} in {region} was built, but EC2 does not show it", hint=RERUN)
    return image


def missing_source(ami: str, region: str) -> PublishError:
    return PublishError(
        f"{ami} in {region} no longer exists: it was deregistered during this run",
        hint="run `imagegen build`, which builds and publishes a new image",
    )


def _describe(ec2: EC2Client, ami: str) -> ImageTypeDef | None:
    # A filter, because ImageIds raises an error for an image that EC2 does not show yet.
    images = ec2.describe_images(Owners=["self"], Filters=[{"Name": "image-id", "Values": [ami]}])["Images"]
    return images[0] if images else None


def _failure(image: ImageTypeDef, place: str) -> PublishError:
    reason = image.get("StateReason", {})
    cause = ": ".join(part for part in (reason.get("Code"), reason.get("Message")) if part) or "AWS gives no reason"
    return PublishError(
        f"{image.get('Name', 'image')}, {place}, is {image['State']}: {cause}",
        hint=f"deregister it, or run `imagegen janitor --delete`; then {RERUN}",
    )
