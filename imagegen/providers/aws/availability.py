"""Waits until EC2 has finished an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from imagegen.errors import PublishError
from imagegen.providers.aws.faults import is_transient
from imagegen.providers.aws.images import AVAILABLE, PENDING
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

# EC2 shows a new image late and may hide an image for a moment; after this time without it, the image does not exist.
APPEARING_LIMIT_S = 120.0

RERUN = "run the same command again: it continues, and keeps finished copies"


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
        raise PublishError(f"{place} was not available within {limit_s / 60:g} minutes", hint=RERUN)
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
