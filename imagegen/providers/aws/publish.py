"""Copies a built AMI to the regions of a plan. Existing copies are kept.

A copy has the tags of its source from the start, so that the next run continues an interrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imagegen.errors import ImagegenError, PublishError
from imagegen.providers import CloudImage, Published, RunFacts
from imagegen.providers.aws.availability import missing_source, wait_until_available
from imagegen.providers.aws.client import Clients, explain_errors
from imagegen.providers.aws.copies import Copy, Source
from imagegen.providers.aws.images import cloud_image, snapshots_of, tags_of
from imagegen.providers.aws.settings import Settings
from imagegen.providers.tags import EXPIRES_AT, NEVER, RUN_ID, run_ids, shared_id
from imagegen.providers.waiting import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan

SOURCE_LIMIT_S = 3600.0


def publish(
    clients: Clients, plan: BuildPlan[Settings], built: CloudImage, run: RunFacts, console: Console, clock: Clock
) -> Published:
    """Start all copies before waiting for the first. An error of one copy does not stop the others."""
    source = Source(_wait_for_source(clients, built, run, console, clock), built.region, plan, run)
    _keep(clients(built.region), source.image)
    started: list[Copy] = []
    images = [cloud_image(source.image, built.region)]
    errors: list[ImagegenError] = []
    for region in dict.fromkeys(plan.settings.publish.regions):
        if region == built.region:
            continue
        copy = Copy(clients, region, source, console, clock)
        try:
            copy.start()
            started.append(copy)
        except ImagegenError as error:
            errors.append(error)
    for copy in started:
        try:
            images.append(copy.finish())
        except ImagegenError as error:
            errors.append(error)
    _raise_all(errors)
    return Published(tuple(images), source.name, sum(copy.is_new for copy in started))


def _wait_for_source(
    clients: Clients, built: CloudImage, run: RunFacts, console: Console, clock: Clock
) -> ImageTypeDef:
    ec2 = clients(built.region)
    with (
        console.task(f"reading {built.id}", None),
        explain_errors(f"reading {built.id} in {built.region}", PublishError),
    ):
        image = wait_until_available(
            ec2, built.id, built.region, SOURCE_LIMIT_S, clock, lambda pending: _share(ec2, pending, run)
        )
    if image is None:
        raise missing_source(built.id, built.region)
    return image


def _share(ec2: EC2Client, image: ImageTypeDef, run: RunFacts) -> None:
    """Tag a pending image of another run with this run too, so that no janitor removes it when the other run ends."""
    tags = tags_of(image)
    expires_at = tags.get(EXPIRES_AT, NEVER)
    if expires_at == NEVER or run.id in run_ids(tags[RUN_ID]):
        return
    mine = {RUN_ID: shared_id(tags[RUN_ID], run.id), EXPIRES_AT: max(expires_at, run.expires_at)}
    ec2.create_tags(
        Resources=[image["ImageId"]], Tags=[{"Key": key, "Value": value} for key, value in sorted(mine.items())]
    )


def _keep(ec2: EC2Client, image: ImageTypeDef) -> None:
    """Remove the expiry of an image that Packer did not tag before it ended."""
    if tags_of(image).get(EXPIRES_AT, NEVER) == NEVER:
        return
    with explain_errors(f"tagging {image['ImageId']}", PublishError):
        ec2.create_tags(Resources=[image["ImageId"], *snapshots_of(image)], Tags=[{"Key": EXPIRES_AT, "Value": NEVER}])


def _raise_all(errors: Sequence[ImagegenError]) -> None:
    if not errors:
        return
    first, *others = errors
    details = list(first.details)
    for error in others:
        details += [error.message, *([f"hint: {error.hint}"] if error.hint != first.hint else []), *error.details]
    raise PublishError(first.message, hint=first.hint, details=details) from first
