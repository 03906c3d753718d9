"""Copies of a built AMI in the regions of a plan: looked for first, then made, then waited for.

A copy wears its source's tags from its first moment, so a run that was cut off is continued by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.errors import ImagegenError, PublishError
from imagegen.providers import Published
from imagegen.providers.aws.availability import source_is_gone, wait_until_available
from imagegen.providers.aws.client import explained
from imagegen.providers.aws.copies import Copy, Source
from imagegen.providers.aws.images import cloud_image, snapshots_of, tags_of
from imagegen.providers.tags import EXPIRES_AT, NEVER, RUN_ID, run_ids, shared_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Run
    from imagegen.providers.aws.client import Clients
    from imagegen.providers.aws.settings import Settings
    from imagegen.providers.waiting import Clock

SOURCE_LIMIT_S = 3600.0


def publish(
    clients: Clients, plan: BuildPlan[Settings], built: CloudImage, run: Run, console: Console, clock: Clock
) -> Published:
    """Every copy is started before the first is waited for; one that fails stops none of the others."""
    source = Source(_wait_for_source(clients, built, run, console, clock), built.region, plan, run)
    _keep(clients(built.region), source.image)
    regions = [region for region in dict.fromkeys(plan.settings.publish.regions) if region != built.region]
    started: list[Copy] = []
    images = [cloud_image(source.image, built.region)]
    wrong: list[ImagegenError] = []
    for region in regions:
        copy = Copy(clients, region, source, console, clock)
        try:
            copy.start()
            started.append(copy)
        except ImagegenError as error:
            wrong.append(error)
    for copy in started:
        try:
            images.append(copy.finish())
        except ImagegenError as error:
            wrong.append(error)
    _raise_all(wrong)
    return Published(tuple(images), source.name, sum(copy.is_new for copy in started))


def _wait_for_source(clients: Clients, built: CloudImage, run: Run, console: Console, clock: Clock) -> ImageTypeDef:
    ec2 = clients(built.region)
    with (
        console.task(f"looking at {built.id}", None),
        explained(f"asking about {built.id} in {built.region}", PublishError),
    ):
        image = wait_until_available(
            ec2, built.id, built.region, SOURCE_LIMIT_S, clock, lambda pending: _share(ec2, pending, run)
        )
    if image is None:
        raise source_is_gone(built.id, built.region)
    return image


def _share(ec2: EC2Client, image: ImageTypeDef, run: Run) -> None:
    """Tell every janitor that this run waits for an image that another one began: its own end is no reason to go."""
    worn = tags_of(image)
    expires_at = worn.get(EXPIRES_AT, NEVER)
    if expires_at == NEVER or run.id in run_ids(worn[RUN_ID]):
        return
    mine = {RUN_ID: shared_id(worn[RUN_ID], run.id), EXPIRES_AT: max(expires_at, run.expires_at)}
    ec2.create_tags(
        Resources=[image["ImageId"]], Tags=[{"Key": key, "Value": value} for key, value in sorted(mine.items())]
    )


def _keep(ec2: EC2Client, image: ImageTypeDef) -> None:
    """An image whose Packer died before it had tagged it wears the builder's expiry still."""
    if tags_of(image).get(EXPIRES_AT, NEVER) == NEVER:
        return
    with explained(f"tagging {image['ImageId']}", PublishError):
        ec2.create_tags(Resources=[image["ImageId"], *snapshots_of(image)], Tags=[{"Key": EXPIRES_AT, "Value": NEVER}])


def _raise_all(wrong: Sequence[ImagegenError]) -> None:
    if not wrong:
        return
    first, *others = wrong
    details = list(first.details)
    for error in others:
        details += [error.message, *([f"hint: {error.hint}"] if error.hint != first.hint else []), *error.details]
    raise PublishError(first.message, hint=first.hint, details=details) from first
