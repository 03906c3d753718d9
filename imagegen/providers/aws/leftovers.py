"""Finds the temporary resources of builds in one region by the tag of the run, which Packer sets on all of them.

Packer's plugin tags each resource in the request that creates it. EC2 creates the snapshots of a copied image itself:
they are found by their descriptions. A fleet of type instant leaves nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import RefusedError
from imagegen.providers import Leftover, Remains
from imagegen.providers.aws.client import explain_errors
from imagegen.providers.aws.copies import COPY_LIMIT_S
from imagegen.providers.aws.faults import is_answer_from_aws
from imagegen.providers.aws.images import Tagged, snapshots_of, tags_of
from imagegen.providers.search import Search
from imagegen.providers.tags import EXPIRES_AT, IMAGE_ID, NEVER, RUN_ID

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

SPOT_REQUEST: Final = "spot request"
INSTANCE: Final = "instance"
LAUNCH_TEMPLATE: Final = "launch template"
IMAGE: Final = "image"
COPIED_IMAGE: Final = "copied image"
SNAPSHOT: Final = "snapshot"
VOLUME: Final = "volume"
INTERFACE: Final = "network interface"
SECURITY_GROUP: Final = "security group"
KEY_PAIR: Final = "key pair"

_OURS: Final[list[Any]] = [{"Name": "tag-key", "Values": [RUN_ID]}]
_FAILED: Final = "failed"
_UNFINISHED: Final = frozenset({"pending", _FAILED, "invalid", "error"})
# The name of the temporary image of which Packer's plugin makes an encrypted copy.
_TEMPORARY_NAME: Final = re.compile(r"[A-Za-z0-9]{7}\Z")


def find(ec2_in: Callable[[str], EC2Client], region: str, copy_regions: Sequence[str] = ()) -> Remains:
    """Find all temporary resources in the build region, in the order of removal; and failed copies in other regions."""
    search = Search(lambda doing: explain_errors(doing, RefusedError), is_answer_from_aws)
    for what, look in (
        ("spot requests", _spot_requests),
        ("instances", _instances),
        ("launch templates", _launch_templates),
        # In one list, because a snapshot that an image uses is no leftover: without the images none is known to be one.
        ("images and snapshots", _images),
        ("volumes", _volumes),
        ("network interfaces", _interfaces),
        ("security groups", _security_groups),
        ("key pairs", _key_pairs),
    ):
        search.collect(f"{what} in {region}", functools.partial(_listed, look, ec2_in, region))
    for copy_region in copy_regions:
        search.collect(
            f"copied images in {copy_region}", functools.partial(_listed, _failed_copies, ec2_in, copy_region)
        )
    return search.remains


def _listed(
    look: Callable[[EC2Client, str], Iterator[Leftover]], ec2_in: Callable[[str], EC2Client], region: str
) -> Iterator[Leftover]:
    return look(ec2_in(region), region)


def snapshots_described_for(ec2: EC2Client, ami: str) -> list[str]:
    """The snapshots of an image by their descriptions, even before the image lists them."""
    forms = (
        re.compile(rf"Created by CreateImage\(i-[0-9a-f]+\) for {ami}\b"),
        re.compile(rf"Copied for DestinationAmi {ami} from SourceAmi ami-[0-9a-f]+"),
    )
    filters: Any = [{"Name": "description", "Values": [f"*{ami}*"]}]
    pages = ec2.get_paginator("describe_snapshots").paginate(OwnerIds=["self"], Filters=filters)
    return [
        snapshot["SnapshotId"]
        for page in pages
        for snapshot in page["Snapshots"]
        if any(form.match(snapshot.get("Description", "")) for form in forms)
    ]


def is_left_over(image: ImageTypeDef) -> bool:
    """Whether an image of a build is unfinished, or was created only to be copied."""
    tags = tags_of(image)
    # A finished image never expires, even when its owner disables it later.
    if RUN_ID not in tags or tags.get(EXPIRES_AT, NEVER) == NEVER:
        return False
    return image["State"] in _UNFINISHED or _is_temporary(image["Name"], tags)


def is_failed_copy(image: ImageTypeDef) -> bool:
    """Whether an image is a failed copy. Copies never expire, so only the state counts. A pending copy is no leftover:
    the next run that publishes continues with it."""
    return image["State"] == _FAILED and RUN_ID in tags_of(image)


def _spot_requests(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    for requests in ec2.get_paginator("describe_spot_instance_requests").paginate(Filters=_OURS):
        for request in requests["SpotInstanceRequests"]:
            if request["State"] in ("open", "active"):
                yield _leftover(SPOT_REQUEST, request["SpotInstanceRequestId"], region, request, request["State"])


def _instances(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    for instances in ec2.get_paginator("describe_instances").paginate(Filters=_OURS):
        for instance in (item for reservation in instances["Reservations"] for item in reservation["Instances"]):
            # EC2 shows a terminated instance for another hour.
            if instance["State"]["Name"] != "terminated":
                yield _leftover(INSTANCE, instance["InstanceId"], region, instance, instance["State"]["Name"])


def _launch_templates(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    for templates in ec2.get_paginator("describe_launch_templates").paginate(Filters=_OURS):
        for template in templates["LaunchTemplates"]:
            yield _leftover(
                LAUNCH_TEMPLATE,
                template["LaunchTemplateId"],
                region,
                template,
                "available",
                template["LaunchTemplateName"],
            )


def _images(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    own = _own_images(ec2)
    for image in filter(is_left_over, own):
        yield _leftover(IMAGE, image["ImageId"], region, image, image["State"], image["Name"])
    yield from _snapshots(ec2, region, own)


def _failed_copies(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    own = _own_images(ec2)
    for image in filter(is_failed_copy, own):
        copy = _leftover(COPIED_IMAGE, image["ImageId"], region, image, image["State"], image["Name"])
        # No run waits longer for a copy.
        until = datetime.datetime.fromisoformat(image["CreationDate"]) + datetime.timedelta(seconds=COPY_LIMIT_S)
        yield dataclasses.replace(copy, expires_at=until.strftime("%Y-%m-%dT%H:%M:%SZ"))
    yield from _snapshots(ec2, region, own)


def _own_images(ec2: EC2Client) -> list[ImageTypeDef]:
    # A disabled image still needs its snapshots.
    pages = ec2.get_paginator("describe_images").paginate(Owners=["self"], IncludeDisabled=True)
    return [image for page in pages for image in page["Images"]]


def _snapshots(ec2: EC2Client, region: str, own: Sequence[ImageTypeDef]) -> Iterator[Leftover]:
    """The snapshots that no image of the account uses. The snapshots of an unfinished image are removed with it."""
    used = {snapshot for image in own for snapshot in snapshots_of(image)}
    for image in own:
        if is_left_over(image) or is_failed_copy(image):
            # The image may not list them yet.
            used.update(snapshots_described_for(ec2, image["ImageId"]))
    for page in ec2.get_paginator("describe_snapshots").paginate(OwnerIds=["self"], Filters=_OURS):
        for snapshot in page["Snapshots"]:
            if tags_of(snapshot).get(EXPIRES_AT, NEVER) != NEVER and snapshot["SnapshotId"] not in used:
                yield _leftover(SNAPSHOT, snapshot["SnapshotId"], region, snapshot, snapshot["State"])


def _is_temporary(name: str, tags: dict[str, str]) -> bool:
    """Whether an image was created only to be copied: its name differs from the name in its tags."""
    return bool(_TEMPORARY_NAME.match(name)) and tags.get("Name", name) != name


def _volumes(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    """The volumes that are not in use; the others are removed with their instances."""
    for volumes in ec2.get_paginator("describe_volumes").paginate(Filters=_OURS):
        for volume in volumes["Volumes"]:
            if volume["State"] in ("available", "error"):
                yield _leftover(VOLUME, volume["VolumeId"], region, volume, volume["State"])


def _interfaces(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    """The network interfaces that are not in use."""
    for interfaces in ec2.get_paginator("describe_network_interfaces").paginate(Filters=_OURS):
        for interface in interfaces["NetworkInterfaces"]:
            if interface["Status"] == "available":
                yield _leftover(
                    INTERFACE, interface["NetworkInterfaceId"], region, {"Tags": interface["TagSet"]}, "available"
                )


def _security_groups(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    for groups in ec2.get_paginator("describe_security_groups").paginate(Filters=_OURS):
        for group in groups["SecurityGroups"]:
            yield _leftover(SECURITY_GROUP, group["GroupId"], region, group, "available", group["GroupName"])


def _key_pairs(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    for pair in ec2.describe_key_pairs(Filters=_OURS)["KeyPairs"]:
        yield _leftover(KEY_PAIR, pair["KeyPairId"], region, pair, "available", pair["KeyName"])


def _leftover(kind: str, id_: str, region: str, resource: Tagged, state: str, name: str = "") -> Leftover:
    tags = tags_of(resource)
    return Leftover(
        kind=kind,
        id=id_,
        region=region,
        name=name or tags.get("Name", ""),
        state=state,
        run_id=tags[RUN_ID],
        expires_at=tags.get(EXPIRES_AT, ""),
        image_id=tags.get(IMAGE_ID, ""),
    )


def of_kind(leftovers: Iterable[Leftover], kind: str) -> list[Leftover]:
    return [leftover for leftover in leftovers if leftover.kind == kind]
