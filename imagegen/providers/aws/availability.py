"""Waiting until EC2 has finished an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.errors import PublishError
from imagegen.providers.aws.faults import may_pass
from imagegen.providers.aws.images import AVAILABLE, PENDING
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

# EC2 answers about an image that it has only just promised, and forgets one for a moment that it showed before; when
# it has not shown an image for so long, there is none.
APPEARING_LIMIT_S = 120.0

RERUN = "run the same command again: it continues with what is there"


def wait_until_available(
    ec2: EC2Client,
    ami: str,
    region: str,
    limit_s: float,
    clock: Clock,
    on_pending: Callable[[ImageTypeDef], None] = lambda _: None,
) -> ImageTypeDef | None:
    """The image as it is then; None when it is not there. Errors are the SDK's; those that pass are waited out.

    While it is waited for, `on_pending` is told at every look.
    """
    place = f"{ami} in {region}"
    seen = clock.now()

    def look() -> list[ImageTypeDef] | None:
        nonlocal seen
        found = _look(ec2, ami)
        if found is None:
            return [] if clock.now() - seen >= APPEARING_LIMIT_S else None
        seen = clock.now()
        if found["State"] == PENDING:
            on_pending(found)
            return None
        if found["State"] != AVAILABLE:
            raise _failed(found, place)
        return [found]

    shown = wait_for(look, limit_s=limit_s, clock=clock, passes=may_pass)
    if shown is None:
        raise PublishError(f"{place} was not available within {limit_s / 60:g} minutes", hint=RERUN)
    return shown[0] if shown else None


def wait_until_shown(ec2: EC2Client, ami: str, region: str, clock: Clock) -> ImageTypeDef:
    """The image, in whatever state. Errors are the SDK's; those that pass are waited out."""
    shown = wait_for(lambda: _look(ec2, ami), limit_s=APPEARING_LIMIT_S, clock=clock, passes=may_pass)
    if shown is None:
        raise PublishError(f"{ami} in {region} was built, and EC2 does not show it", hint=RERUN)
    return shown


def source_is_gone(ami: str, region: str) -> PublishError:
    return PublishError(
        f"{ami} in {region} is not there: it was deregistered since it was found",
        hint="run `imagegen build`, which builds another one and publishes that",
    )


def _look(ec2: EC2Client, ami: str) -> ImageTypeDef | None:
    # By filter, not by ImageIds: an id that EC2 does not know yet is then no error.
    found = ec2.describe_images(Owners=["self"], Filters=[{"Name": "image-id", "Values": [ami]}])["Images"]
    return found[0] if found else None


def _failed(image: ImageTypeDef, place: str) -> PublishError:
    reason = image.get("StateReason", {})
    told = ": ".join(part for part in (reason.get("Code"), reason.get("Message")) if part) or "without a reason"
    return PublishError(
        f"{image.get('Name', 'image')}, {place}, is {image['State']}: {told}",
        hint=f"deregister it (`imagegen janitor --delete` does it too), and {RERUN}",
    )
