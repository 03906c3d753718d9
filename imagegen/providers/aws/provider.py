"""AWS' answers to what `imagegen.providers.provider.Provider` asks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from imagegen.build.pins import NeededPlugin, Pin
from imagegen.errors import PublishError, RefusedError
from imagegen.providers import Found
from imagegen.providers.aws import base, checks, images, removal, source, tags
from imagegen.providers.aws import leftovers as remains
from imagegen.providers.aws import publish as publishing
from imagegen.providers.aws.availability import wait_until_shown
from imagegen.providers.aws.client import ec2_clients, explained, service_clients
from imagegen.providers.aws.place import Place
from imagegen.providers.aws.settings import Settings
from imagegen.providers.provider import BootFile, Provider
from imagegen.providers.tags import REPORT
from imagegen.providers.waiting import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.artifacts.lock import LockedBase
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Leftover, Published, Remains, Run
    from imagegen.providers.aws.client import ServiceClients
    from imagegen.providers.deadline import Deadline

    Plan = BuildPlan[Settings]

# EC2's codes, and then its sentences: of what a spot fleet was refused for, the plugin prints only these. One code is
# a word that other failures say too.
_NO_CAPACITY: Final = frozenset(
    {
        "InstanceLimitExceeded",
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "VcpuLimitExceeded",
        "api error Unsupported:",
        "There is no Spot capacity available that matches your request",
        "lower than the minimum required Spot request fulfillment price",
        "Max spot instance count exceeded",
        "is not supported in your requested Availability Zone",
        "Unable to fulfill capacity due to your request configuration",
    }
)

# Static keys, profiles, web identities, containers' and instances' roles.
_ENVIRONMENT: Final = frozenset({"AWS_*"})
# As the plugin says it made them; launch templates are spot fleets'.
_TRACES: Final = (
    r"\b(?:i|lt)-[0-9a-f]{8,17}\b|\btemporary (?:keypair|security group for this instance): packer_[-0-9a-f]+"
)
_ADVICE: Final = (
    "The instance's password is lost. With an instance profile for Systems Manager, look into it with "
    "`aws ssm start-session --target ID`.\n"
    "To remove it: `aws ec2 terminate-instances --instance-ids ID`, then `aws ec2 delete-key-pair --key-name NAME` and "
    "`aws ec2 delete-security-group`."
)


def look_up_base(settings: Settings, request: Mapping[str, str], run: Run) -> LockedBase:
    """The newest image that the request describes."""
    with ec2_clients(run.environ, settings.auth) as clients, explained("looking up the base image", RefusedError):
        return base.look_up_base(clients(request["region"]), request)


def find_built(plan: Plan, run: Run) -> Found:
    """The newest AMI of this plan and these labels in the build region, available or about to be."""
    settings, region = plan.settings, plan.settings.region
    doing = f"looking for built images in {region}"
    with ec2_clients(run.environ, settings.auth) as clients, explained(doing, RefusedError):
        known = images.images_of(clients(region), plan.image_id, run.labels)
    newest = images.newest_usable(image for image in known if images.as_planned(image, settings))
    return Found(images.cloud_image(newest, region) if newest else None)


def read_built(plan: Plan, artifact: str, run: Run) -> CloudImage | None:
    """The AMI of the build region."""
    region = plan.settings.region
    ami = images.ami_of(artifact, region)
    if ami is None:
        return None
    with ec2_clients(run.environ, plan.settings.auth) as clients, explained(f"reading {ami} in {region}", PublishError):
        return images.cloud_image(wait_until_shown(clients(region), ami, region, Clock()), region)


def mark(plan: Plan, image: CloudImage, report: str, run: Run) -> None:
    """A tag of the AMI."""
    with ec2_clients(run.environ, plan.settings.auth) as clients, explained(f"tagging {image.id}", PublishError):
        clients(image.region).create_tags(Resources=[image.id], Tags=[{"Key": REPORT, "Value": report}])


def publish(plan: Plan, built: CloudImage, run: Run, console: Console) -> Published:
    """Copies in the plan's regions."""
    with ec2_clients(run.environ, plan.settings.auth) as clients, explained("publishing", PublishError):
        return publishing.publish(clients, plan, built, run, console, Clock())


def place(settings: Settings, run: Run) -> Place:
    """The regions of an account, as whoever the config says: other credentials may be another account's."""
    with service_clients(run.environ, settings.auth) as clients:
        account = _account(clients, settings.region)
    copy_regions = [region for region in settings.publish.regions if region != settings.region]
    return Place(region=settings.region, copy_regions=copy_regions, auth=settings.auth, account=account)


def leftovers(place: Place, run: Run, deadline: Deadline | None) -> Remains:
    """What builds have in their region, and what failed copies left in the others."""
    with service_clients(run.environ, place.auth, deadline=deadline) as clients:
        _refuse_other_account(clients, place)
        return remains.find(functools.partial(clients, "ec2"), place.region, place.copy_regions)


def remove(place: Place, leftovers: Sequence[Leftover], run: Run) -> Iterator[tuple[Leftover, str]]:
    """Machines first, then what they used."""
    with service_clients(run.environ, place.auth) as clients:
        _refuse_other_account(clients, place)
        for region in dict.fromkeys(leftover.region for leftover in leftovers):
            there = [leftover for leftover in leftovers if leftover.region == region]
            with explained(f"removing leftovers in {region}", PublishError):
                yield from removal.remove(clients("ec2", region), there, Clock())


def _refuse_other_account(clients: ServiceClients, place: Place) -> None:
    found = _account(clients, place.region)
    # Journals of earlier versions name none.
    if place.account not in ("", found):
        raise RefusedError(
            f"account {place.account} in {place.region} cannot be looked at: the credentials are those of {found}",
            hint=f"run `imagegen janitor` with credentials of account {place.account}",
        )


def _account(clients: ServiceClients, region: str) -> str:
    with explained(f"asking whose account it is in {region}", RefusedError, service="sts"):
        account: str = clients("sts", region).get_caller_identity()["Account"]
    return account


PROVIDER: Final = Provider[Settings, Place](
    name="aws",
    plugin=NeededPlugin("amazon", "1.2.6", Pin("github.com/hashicorp/packer-plugin-amazon", "v1.8.2", 136, 3.2)),
    builder="amazon-ebs",
    no_capacity=_NO_CAPACITY,
    environment=_ENVIRONMENT,
    traces=_TRACES,
    advice=_ADVICE,
    base_form=base.BASE_FORM,
    place_model=Place,
    base_request=base.base_request,
    look_up_base=look_up_base,
    quick_checks=checks.quick_checks,
    thorough_checks=checks.thorough_checks,
    builder_sizes=lambda settings: settings.instance_types,
    image_tags=tags.image_tags,
    source_values=source.source_values,
    find_built=find_built,
    read_built=read_built,
    mark=mark,
    publish=publish,
    place=place,
    leftovers=leftovers,
    remove=remove,
    # EC2Launch runs what stands between these tags, as SYSTEM.
    boot_files={"bootstrap.ps1": BootFile("user-data.txt", b"<powershell>\n", b"</powershell>\n")},
)
