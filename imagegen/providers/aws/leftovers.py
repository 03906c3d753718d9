"""Finds the temporary resources of builds in one region by the tag of the run, and removes them.

Packer's plugin tags each resource in the request that creates it. EC2 creates the snapshots of a copied image itself:
they are found by their descriptions. A fleet of type instant leaves nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import PublishError, RefusedError
from imagegen.providers import Leftover, Remains
from imagegen.providers.aws.faults import error_code, explain_errors, is_answer_from_aws
from imagegen.providers.aws.images import AVAILABLE, Tagged, snapshots_of, tags_of
from imagegen.providers.search import Search
from imagegen.providers.tags import EXPIRES_AT, IMAGE_ID, NEVER, RUN_ID, is_unjudged
from imagegen.providers.time_limits import Clock, wait_for

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, ImageTypeDef

    Action = Callable[[Leftover], object]

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

TERMINATION_LIMIT_S: Final = 600.0
# A network interface and its security group outlive the instance for a moment.
RELEASE_LIMIT_S: Final = 180.0
# Within this time after its start, a run of another machine has usually seen that its copy failed. A run that has not
# starts another copy.
_FAILED_COPY_STAYS: Final = datetime.timedelta(hours=2)

_OURS: Final[list[Any]] = [{"Name": "tag-key", "Values": [RUN_ID]}]
_FAILED: Final = "failed"
_UNFINISHED: Final = frozenset({"pending", _FAILED, "invalid", "error"})


def find(ec2_in: Callable[[str], EC2Client], region: str, copy_regions: Sequence[str] = ()) -> Remains:
    """Find all temporary resources in the build region, in the order of removal; and failed copies in other regions."""
    search = Search(lambda doing: explain_errors(doing, RefusedError), is_answer_from_aws)
    lists = [
        *((what, region, look) for what, look in _LISTS),
        *(("copied images", copy_region, _failed_copies) for copy_region in copy_regions),
    ]
    for what, place, look in lists:
        search.collect(f"{what} in {place}", functools.partial(_listed, look, ec2_in, place))
    return search.remains


def _listed(
    look: Callable[[EC2Client, str], Iterator[Leftover]], ec2_in: Callable[[str], EC2Client], region: str
) -> Iterator[Leftover]:
    return look(ec2_in(region), region)


def is_left_over(image: ImageTypeDef) -> bool:
    """Whether an image of a build is unfinished, or expired before it was judged."""
    tags = tags_of(image)
    # A finished image never expires, even when its owner disables it later.
    if RUN_ID not in tags or tags.get(EXPIRES_AT, NEVER) == NEVER:
        return False
    expired = image["State"] == AVAILABLE and is_unjudged(tags, datetime.datetime.now(datetime.UTC))
    return image["State"] in _UNFINISHED or expired


def is_failed_copy(image: ImageTypeDef) -> bool:
    """Whether an image is a failed copy. Copies never expire, so only the state counts. A pending copy is no leftover:
    the next run that publishes continues with it."""
    return image["State"] == _FAILED and RUN_ID in tags_of(image)


def _images(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    own = _own_images(ec2)
    for image in filter(is_left_over, own):
        yield _leftover(IMAGE, image["ImageId"], region, image, image["State"], image["Name"])
    yield from _snapshots(ec2, region, own)


def _failed_copies(ec2: EC2Client, region: str) -> Iterator[Leftover]:
    own = _own_images(ec2)
    for image in filter(is_failed_copy, own):
        copy = _leftover(COPIED_IMAGE, image["ImageId"], region, image, image["State"], image["Name"])
        until = datetime.datetime.fromisoformat(image["CreationDate"]) + _FAILED_COPY_STAYS
        yield dataclasses.replace(copy, expires_at=until.strftime("%Y-%m-%dT%H:%M:%SZ"))
    yield from _snapshots(ec2, region, own)


def _own_images(ec2: EC2Client) -> list[ImageTypeDef]:
    return [
        image
        # A disabled image still needs its snapshots.
        for page in ec2.get_paginator("describe_images").paginate(Owners=["self"], IncludeDisabled=True)
        for image in page["Images"]
    ]


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


def snapshots_described_for(ec2: EC2Client, ami: str) -> list[str]:
    """The snapshots of an image by their descriptions, even before the image lists them."""
    forms = (
        re.compile(rf"Created by CreateImage\(i-[0-9a-f]+\) for {ami}\b"),
        re.compile(rf"Copied for DestinationAmi {ami} from SourceAmi ami-[0-9a-f]+"),
    )
    pages = ec2.get_paginator("describe_snapshots").paginate(
        OwnerIds=["self"], Filters=[{"Name": "description", "Values": [f"*{ami}*"]}]
    )
    return [
        snapshot["SnapshotId"]
        for page in pages
        for snapshot in page["Snapshots"]
        if any(form.match(snapshot.get("Description", "")) for form in forms)
    ]


def _leftover(kind: str, id_: str, region: str, resource: Tagged, state: str = "available", name: str = "") -> Leftover:
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


# The lists of one region, in the order of removal.
_LISTS: Final[Sequence[tuple[str, Callable[[EC2Client, str], Iterator[Leftover]]]]] = (
    (
        "spot requests",
        lambda ec2, region: (
            _leftover(SPOT_REQUEST, request["SpotInstanceRequestId"], region, request, request["State"])
            for page in ec2.get_paginator("describe_spot_instance_requests").paginate(Filters=_OURS)
            for request in page["SpotInstanceRequests"]
            if request["State"] in ("open", "active")
        ),
    ),
    (
        "instances",
        lambda ec2, region: (
            _leftover(INSTANCE, instance["InstanceId"], region, instance, instance["State"]["Name"])
            for page in ec2.get_paginator("describe_instances").paginate(Filters=_OURS)
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            # EC2 shows a terminated instance for another hour.
            if instance["State"]["Name"] != "terminated"
        ),
    ),
    (
        "launch templates",
        lambda ec2, region: (
            _leftover(LAUNCH_TEMPLATE, found["LaunchTemplateId"], region, found, name=found["LaunchTemplateName"])
            for page in ec2.get_paginator("describe_launch_templates").paginate(Filters=_OURS)
            for found in page["LaunchTemplates"]
        ),
    ),
    # In one list, because a snapshot that an image uses is no leftover: without the images none is known to be one.
    ("images and snapshots", _images),
    (
        "volumes",
        lambda ec2, region: (
            _leftover(VOLUME, volume["VolumeId"], region, volume, volume["State"])
            for page in ec2.get_paginator("describe_volumes").paginate(Filters=_OURS)
            for volume in page["Volumes"]
            # Volumes in use are removed with their instances.
            if volume["State"] in ("available", "error")
        ),
    ),
    (
        "network interfaces",
        lambda ec2, region: (
            _leftover(INTERFACE, interface["NetworkInterfaceId"], region, {"Tags": interface["TagSet"]})
            for page in ec2.get_paginator("describe_network_interfaces").paginate(Filters=_OURS)
            for interface in page["NetworkInterfaces"]
            # The others are in use.
            if interface["Status"] == "available"
        ),
    ),
    (
        "security groups",
        lambda ec2, region: (
            _leftover(SECURITY_GROUP, group["GroupId"], region, group, name=group["GroupName"])
            for page in ec2.get_paginator("describe_security_groups").paginate(Filters=_OURS)
            for group in page["SecurityGroups"]
        ),
    ),
    (
        "key pairs",
        lambda ec2, region: (
            _leftover(KEY_PAIR, pair["KeyPairId"], region, pair, name=pair["KeyName"])
            for pair in ec2.describe_key_pairs(Filters=_OURS)["KeyPairs"]
        ),
    ),
)


def remove(ec2: EC2Client, leftovers: Sequence[Leftover], clock: Clock) -> Iterator[tuple[Leftover, str]]:
    """Remove leftovers, instances before the resources that they use.

    Yields the reason for each leftover that remains; empty where it is gone.
    """
    actions: dict[str, Action] = {
        # Images first: while this run waits for instances, another run may start to use a pending image.
        IMAGE: functools.partial(_deregister, ec2),
        COPIED_IMAGE: functools.partial(_deregister, ec2),
        SPOT_REQUEST: lambda request: ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request.id]),
        INSTANCE: functools.partial(_wait_until_terminated, ec2, clock),
        LAUNCH_TEMPLATE: lambda template: ec2.delete_launch_template(LaunchTemplateId=template.id),
        SNAPSHOT: lambda snapshot: ec2.delete_snapshot(SnapshotId=snapshot.id),
        VOLUME: lambda volume: ec2.delete_volume(VolumeId=volume.id),
        INTERFACE: lambda interface: ec2.delete_network_interface(NetworkInterfaceId=interface.id),
        SECURITY_GROUP: lambda group: wait_for(
            lambda: (ec2.delete_security_group(GroupId=group.id),),
            limit_s=RELEASE_LIMIT_S,
            clock=clock,
            is_transient=lambda error: error_code(error) == "DependencyViolation",
        ),
        KEY_PAIR: functools.partial(_delete_key_pair, ec2, clock),
    }
    for kind, action in actions.items():
        of_kind = [leftover for leftover in leftovers if leftover.kind == kind]
        if kind == INSTANCE:
            yield from _terminate(ec2, of_kind, action)
        else:
            yield from ((leftover, _try(action, leftover)) for leftover in of_kind)


def _terminate(ec2: EC2Client, instances: Sequence[Leftover], wait: Action) -> Iterator[tuple[Leftover, str]]:
    """Send all requests before waiting for the first instance."""
    failures = [_try(lambda it: ec2.terminate_instances(InstanceIds=[it.id]), instance) for instance in instances]
    for instance, failure in zip(instances, failures, strict=True):
        yield instance, failure or _try(wait, instance)


def _try(action: Action, leftover: Leftover) -> str:
    """Run an action, and return the reason of its failure; empty where it succeeded or the resource is gone."""
    import botocore.exceptions as sdk

    try:
        action(leftover)
    except sdk.ClientError as error:
        code, message = error_code(error) or "unknown", error.response.get("Error", {}).get("Message", "")
        return "" if code == "InvalidAMIID.Unavailable" or ".NotFound" in code else f"{code}: {message}"
    except (sdk.BotoCoreError, PublishError) as error:
        return str(error)
    return ""


def _wait_until_terminated(ec2: EC2Client, clock: Clock, instance: Leftover) -> None:
    def poll() -> bool | None:
        found = ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": [instance.id]}])
        states = {item["State"]["Name"] for reservation in found["Reservations"] for item in reservation["Instances"]}
        return True if states <= {"terminated"} else None

    if wait_for(poll, limit_s=TERMINATION_LIMIT_S, clock=clock) is None:
        raise PublishError(f"it did not terminate within {TERMINATION_LIMIT_S / 60:g} minutes")


def _delete_key_pair(ec2: EC2Client, clock: Clock, pair: Leftover) -> None:
    # EC2 answers that it has deleted a key pair also where there was none to delete.
    ec2.delete_key_pair(KeyPairId=pair.id)
    by_id: FilterTypeDef = {"Name": "key-pair-id", "Values": [pair.id]}
    is_gone = wait_for(
        lambda: not ec2.describe_key_pairs(Filters=[by_id])["KeyPairs"] or None, limit_s=RELEASE_LIMIT_S, clock=clock
    )
    if is_gone is None:
        raise PublishError(f"EC2 still shows it after {RELEASE_LIMIT_S / 60:g} minutes")


def _deregister(ec2: EC2Client, image: Leftover) -> None:
    """Deregister an image and delete its snapshots. These are tagged first, so that the next janitor finds them."""
    shown = ec2.describe_images(
        Owners=["self"], Filters=[{"Name": "image-id", "Values": [image.id]}], IncludeDisabled=True
    )
    found = next(iter(shown["Images"]), None)
    if found is None:
        return
    # Since it was listed, the image may have been finished, or another run may have started to wait for it.
    if not _is_still(image, found):
        raise PublishError(f"it is no longer a leftover: it is {found['State']} now")
    snapshots = list(dict.fromkeys([*snapshots_of(found), *snapshots_described_for(ec2, image.id)]))
    if snapshots:
        ec2.create_tags(
            Resources=snapshots,
            Tags=[{"Key": RUN_ID, "Value": image.run_id}, {"Key": EXPIRES_AT, "Value": image.expires_at}],
        )
    ec2.deregister_image(ImageId=image.id)
    for snapshot in snapshots:
        ec2.delete_snapshot(SnapshotId=snapshot)


def _is_still(listed: Leftover, image: ImageTypeDef) -> bool:
    """Whether the image is still the leftover that was listed."""
    tags = tags_of(image)
    if listed.kind == COPIED_IMAGE:
        return is_failed_copy(image) and tags[RUN_ID] == listed.run_id
    return is_left_over(image) and (tags[RUN_ID], tags[EXPIRES_AT]) == (listed.run_id, listed.expires_at)
