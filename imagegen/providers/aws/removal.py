"""Removes leftovers from one region: machines before what they used. What is gone already counts as removed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import PublishError
from imagegen.providers.aws import leftovers as kinds
from imagegen.providers.aws.images import snapshots_of, tags_of
from imagegen.providers.tags import EXPIRES_AT, RUN_ID
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

    from imagegen.providers import Leftover

    Action = Callable[[str], object]

TERMINATION_LIMIT_S: Final = 600.0
# A network interface stays for a moment after its instance, and a security group as long as that.
RELEASE_LIMIT_S: Final = 180.0
_IN_USE: Final = "DependencyViolation"
_NOT_FOUND: Final = ".NotFound"
_ALREADY: Final = "InvalidAMIID.Unavailable"


def remove(ec2: EC2Client, leftovers: Sequence[Leftover], clock: Clock) -> Iterator[tuple[Leftover, str]]:
    """Each leftover with the reason why it is still there; an empty one means that it is gone."""
    # Unfinished images need nothing of these, and while machines are waited for, a run may take one for its own.
    for image in (*kinds.of_kind(leftovers, kinds.IMAGE), *kinds.of_kind(leftovers, kinds.COPIED_IMAGE)):
        yield image, _try(functools.partial(_deregister, ec2, image), image.id)
    for request in kinds.of_kind(leftovers, kinds.SPOT_REQUEST):
        yield request, _try(lambda it: ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[it]), request.id)
    yield from _terminate(ec2, kinds.of_kind(leftovers, kinds.INSTANCE), clock)
    for template in kinds.of_kind(leftovers, kinds.LAUNCH_TEMPLATE):
        yield template, _try(lambda it: ec2.delete_launch_template(LaunchTemplateId=it), template.id)
    actions: dict[str, Action] = {
        kinds.SNAPSHOT: lambda it: ec2.delete_snapshot(SnapshotId=it),
        kinds.VOLUME: lambda it: ec2.delete_volume(VolumeId=it),
        kinds.INTERFACE: lambda it: ec2.delete_network_interface(NetworkInterfaceId=it),
        kinds.SECURITY_GROUP: functools.partial(_delete_group, ec2, clock),
        kinds.KEY_PAIR: lambda it: ec2.delete_key_pair(KeyPairId=it),
    }
    for kind, action in actions.items():
        for leftover in kinds.of_kind(leftovers, kind):
            yield leftover, _try(action, leftover.id)


def _try(action: Action, id_: str) -> str:
    """Why it did not work; empty when it did, or when there was nothing left to do."""
    import botocore.exceptions as sdk

    try:
        action(id_)
    except sdk.ClientError as error:
        told = error.response.get("Error", {})
        code = told.get("Code", "unknown")
        return "" if code == _ALREADY or _NOT_FOUND in code else f"{code}: {told.get('Message', '')}"
    except sdk.BotoCoreError as error:
        return str(error)
    except PublishError as late:
        return late.message
    return ""


def _terminate(ec2: EC2Client, instances: Sequence[Leftover], clock: Clock) -> Iterator[tuple[Leftover, str]]:
    """All are told before the first is waited for."""
    told = [(it, _try(lambda id_: ec2.terminate_instances(InstanceIds=[id_]), it.id)) for it in instances]
    for instance, why_not in told:
        yield instance, why_not or _try(functools.partial(_wait_until_terminated, ec2, clock), instance.id)


def _wait_until_terminated(ec2: EC2Client, clock: Clock, id_: str) -> None:
    asked: Any = [{"Name": "instance-id", "Values": [id_]}]

    def look() -> bool | None:
        states = {
            each["State"]["Name"]
            for reservation in ec2.describe_instances(Filters=asked)["Reservations"]
            for each in reservation["Instances"]
        }
        return True if states <= {"terminated"} else None

    if wait_for(look, limit_s=TERMINATION_LIMIT_S, clock=clock) is None:
        raise PublishError(f"it did not terminate within {TERMINATION_LIMIT_S / 60:g} minutes")


def _deregister(ec2: EC2Client, image: Leftover, id_: str) -> None:
    """With its snapshots, which are marked first: cut off in between, the next run of the janitor finds them."""
    asked: Any = [{"Name": "image-id", "Values": [id_]}]
    found = ec2.describe_images(Owners=["self"], Filters=asked, IncludeDisabled=True)["Images"]
    if not found:
        return
    for each in found:
        # It may have been finished since it was listed, or another run waits for it by now.
        if not _is_still(image, each):
            raise PublishError(f"it is no leftover any more: it is {each['State']} now")
    named = [snapshot for each in found for snapshot in snapshots_of(each)]
    snapshots = list(dict.fromkeys([*named, *kinds.snapshots_described_for(ec2, id_)]))
    if snapshots:
        marks: Any = [{"Key": RUN_ID, "Value": image.run_id}, {"Key": EXPIRES_AT, "Value": image.expires_at}]
        ec2.create_tags(Resources=snapshots, Tags=marks)
    ec2.deregister_image(ImageId=id_)
    for snapshot in snapshots:
        ec2.delete_snapshot(SnapshotId=snapshot)


def _is_still(listed: Leftover, image: ImageTypeDef) -> bool:
    """Whether it is the leftover that was listed."""
    worn = tags_of(image)
    if listed.kind == kinds.COPIED_IMAGE:
        return kinds.is_failed_copy(image) and worn[RUN_ID] == listed.run_id
    return kinds.is_left_over(image) and (worn[RUN_ID], worn[EXPIRES_AT]) == (listed.run_id, listed.expires_at)


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
