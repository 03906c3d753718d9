"""Removes leftovers from one region, instances before the resources that they use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import PublishError
from imagegen.providers import Leftover
from imagegen.providers.aws import leftovers as kinds
from imagegen.providers.aws.images import snapshots_of, tags_of
from imagegen.providers.tags import EXPIRES_AT, RUN_ID
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

    Action = Callable[[str], object]

TERMINATION_LIMIT_S: Final = 600.0
# A network interface and its security group outlive the instance for a moment.
RELEASE_LIMIT_S: Final = 180.0
_IN_USE: Final = "DependencyViolation"
_NOT_FOUND: Final = ".NotFound"
_ALREADY: Final = "InvalidAMIID.Unavailable"


def remove(ec2: EC2Client, leftovers: Sequence[Leftover], clock: Clock) -> Iterator[tuple[Leftover, str]]:
    """Remove leftovers, and yield the reason for each that remains; empty where it is gone."""
    # Images first: while this run waits for instances, another run may start to use a pending image.
    for image in (*kinds.of_kind(leftovers, kinds.IMAGE), *kinds.of_kind(leftovers, kinds.COPIED_IMAGE)):
        yield image, _try(functools.partial(_deregister, ec2, image), image.id)
    for request in kinds.of_kind(leftovers, kinds.SPOT_REQUEST):
        yield request, _try(lambda id_: ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[id_]), request.id)
    yield from _terminate(ec2, kinds.of_kind(leftovers, kinds.INSTANCE), clock)
    for template in kinds.of_kind(leftovers, kinds.LAUNCH_TEMPLATE):
        yield template, _try(lambda id_: ec2.delete_launch_template(LaunchTemplateId=id_), template.id)
    actions: dict[str, Action] = {
        kinds.SNAPSHOT: lambda id_: ec2.delete_snapshot(SnapshotId=id_),
        kinds.VOLUME: lambda id_: ec2.delete_volume(VolumeId=id_),
        kinds.INTERFACE: lambda id_: ec2.delete_network_interface(NetworkInterfaceId=id_),
        kinds.SECURITY_GROUP: functools.partial(_delete_group, ec2, clock),
        kinds.KEY_PAIR: lambda id_: ec2.delete_key_pair(KeyPairId=id_),
    }
    for kind, action in actions.items():
        for leftover in kinds.of_kind(leftovers, kind):
            yield leftover, _try(action, leftover.id)


def _try(action: Action, id_: str) -> str:
    """Run an action, and return the reason of its failure; empty where it succeeded or the resource is gone."""
    import botocore.exceptions as sdk

    try:
        action(id_)
    except sdk.ClientError as error:
        details = error.response.get("Error", {})
        code = details.get("Code", "unknown")
        return "" if code == _ALREADY or _NOT_FOUND in code else f"{code}: {details.get('Message', '')}"
    except (sdk.BotoCoreError, PublishError) as error:
        return str(error)
    return ""


def _terminate(ec2: EC2Client, instances: Sequence[Leftover], clock: Clock) -> Iterator[tuple[Leftover, str]]:
    """Send all requests before waiting for the first instance."""
    failures = [_try(lambda id_: ec2.terminate_instances(InstanceIds=[id_]), instance.id) for instance in instances]
    for instance, failure in zip(instances, failures, strict=True):
        yield instance, failure or _try(functools.partial(_wait_until_terminated, ec2, clock), instance.id)


def _wait_until_terminated(ec2: EC2Client, clock: Clock, id_: str) -> None:
    filters: Any = [{"Name": "instance-id", "Values": [id_]}]

    def poll() -> bool | None:
        states = {
            instance["State"]["Name"]
            for reservation in ec2.describe_instances(Filters=filters)["Reservations"]
            for instance in reservation["Instances"]
        }
        return True if states <= {"terminated"} else None

    if wait_for(poll, limit_s=TERMINATION_LIMIT_S, clock=clock) is None:
        raise PublishError(f"it did not terminate within {TERMINATION_LIMIT_S / 60:g} minutes")


def _deregister(ec2: EC2Client, image: Leftover, id_: str) -> None:
    """Deregister an image and delete its snapshots. These are tagged first, so that the next janitor finds them."""
    filters: Any = [{"Name": "image-id", "Values": [id_]}]
    found = next(iter(ec2.describe_images(Owners=["self"], Filters=filters, IncludeDisabled=True)["Images"]), None)
    if found is None:
        return
    # Since it was listed, the image may have been finished, or another run may have started to wait for it.
    if not _is_still(image, found):
        raise PublishError(f"it is no longer a leftover: it is {found['State']} now")
    snapshots = list(dict.fromkeys([*snapshots_of(found), *kinds.snapshots_described_for(ec2, id_)]))
    if snapshots:
        marks: Any = [{"Key": RUN_ID, "Value": image.run_id}, {"Key": EXPIRES_AT, "Value": image.expires_at}]
        ec2.create_tags(Resources=snapshots, Tags=marks)
    ec2.deregister_image(ImageId=id_)
    for snapshot in snapshots:
        ec2.delete_snapshot(SnapshotId=snapshot)


def _is_still(listed: Leftover, image: ImageTypeDef) -> bool:
    """Whether the image is still the leftover that was listed."""
    tags = tags_of(image)
    if listed.kind == kinds.COPIED_IMAGE:
        return kinds.is_failed_copy(image) and tags[RUN_ID] == listed.run_id
    return kinds.is_left_over(image) and (tags[RUN_ID], tags[EXPIRES_AT]) == (listed.run_id, listed.expires_at)


def _delete_group(ec2: EC2Client, clock: Clock, id_: str) -> None:
    import botocore.exceptions as sdk

    last: list[sdk.ClientError] = []

    def attempt() -> bool | None:
        try:
            ec2.delete_security_group(GroupId=id_)
        except sdk.ClientError as error:
            if error.response.get("Error", {}).get("Code") != _IN_USE:
                raise
            last.append(error)
            return None
        return True

    if wait_for(attempt, limit_s=RELEASE_LIMIT_S, clock=clock) is None:
        raise last[-1]
