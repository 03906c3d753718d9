"""The provider AWS: see `imagegen.providers.provider.Provider`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import PublishError, RefusedError
from imagegen.build.tools import NeededPlugin, Pin
from imagegen.fetch.lock import LockedBase
from imagegen.providers import CloudImage, Leftover, Published, Remains, RunFacts, SearchResult
from imagegen.providers.aws import checks, images, source
from imagegen.providers.aws import leftovers as remains
from imagegen.providers.aws import publish as publishing
from imagegen.providers.aws.client import ServiceClients, ec2_clients, service_clients
from imagegen.providers.aws.faults import explain_errors
from imagegen.providers.aws.images import tags_of
from imagegen.providers.aws.settings import Place, Settings
from imagegen.providers.provider import BootFile, Provider
from imagegen.providers.tags import IMAGE_ID, REJECTED, REPORT
from imagegen.providers.time_limits import Clock, Deadline

if TYPE_CHECKING:
    from imagegen.base.console import Console
    from imagegen.plan.model import BuildPlan

    Plan = BuildPlan[Settings]


def look_up_base(settings: Settings, request: Mapping[str, str], run: RunFacts) -> LockedBase:
    """The newest base image that matches the request."""
    with ec2_clients(run.environ, settings.auth) as clients, explain_errors("looking up the base image", RefusedError):
        return images.look_up_base(clients(request["region"]), request, settings)


def find_built(plan: Plan, run: RunFacts) -> SearchResult:
    """The newest available or pending AMI of this plan with these labels in the build region."""
    settings, region = plan.settings, plan.settings.region
    with (
        ec2_clients(run.environ, settings.auth) as clients,
        explain_errors(f"looking for built images in {region}", RefusedError),
    ):
        known = images.images_of(clients(region), plan.image_id, run.labels)
        rejected = images.rejected_images(clients(region), plan.build.name, run.labels)
    newest = images.newest_usable(image for image in known if images.is_as_planned(image, settings))
    # A rejected image is disabled, so that the list of this plan's images does not have it.
    found = newest or next((image for image in rejected if tags_of(image).get(IMAGE_ID) == plan.image_id), None)
    return SearchResult(
        images.cloud_image(found, region) if found else None,
        tuple(images.describe_rejected(image, region) for image in rejected),
    )


def read_built(plan: Plan, artifact: str, run: RunFacts) -> CloudImage | None:
    """The AMI in the build region."""
    region = plan.settings.region
    ami = images.ami_of(artifact, region)
    if ami is None:
        return None
    with (
        ec2_clients(run.environ, plan.settings.auth) as clients,
        explain_errors(f"reading {ami} in {region}", PublishError),
    ):
        image = images.wait_until_shown(clients(region), ami, region, Clock())
    if plan.settings.encryption and not images.has_encrypted_disks(image):
        raise PublishError(
            f"{ami} in {region} has a disk that is not encrypted",
            hint=f"deregister {ami}, choose a base image with one disk, and build again",
        )
    return images.cloud_image(image, region)


def mark(plan: Plan, image: CloudImage, report: str, run: RunFacts) -> None:
    """Tag the AMI. A rejected AMI is disabled too: Cluster API finds images by their name, whatever tags they have."""
    with ec2_clients(run.environ, plan.settings.auth) as clients:
        ec2 = clients(image.region)
        # Whoever may not do the one may still do the other.
        try:
            if report == REJECTED:
                with explain_errors(f"disabling {image.id}", PublishError):
                    ec2.disable_image(ImageId=image.id)
        finally:
            with explain_errors(f"tagging {image.id}", PublishError):
                ec2.create_tags(Resources=[image.id], Tags=[{"Key": REPORT, "Value": report}])


def build_again(_plan: Plan, image: CloudImage) -> str:
    """With --rebuild: the name of an AMI has a random part."""
    command = images.deregistration(image.id, image.region)
    return f"build again with `imagegen build --rebuild`; to delete {image.id}: `{command}`"


def publish(plan: Plan, built: CloudImage, run: RunFacts, console: Console) -> Published:
    """Copy the AMI to the regions of the plan."""
    with ec2_clients(run.environ, plan.settings.auth) as clients, explain_errors("publishing", PublishError):
        return publishing.publish(clients, plan, built, run, console, Clock())


def place(settings: Settings, run: RunFacts) -> Place:
    """The regions and the account: later credentials may belong to another account."""
    with service_clients(run.environ, settings.auth) as clients:
        return Place(
            region=settings.region,
            copy_regions=[region for region in settings.publish.regions if region != settings.region],
            auth=settings.auth,
            account=_account(clients, settings.region),
        )


def leftovers(place: Place, run: RunFacts, deadline: Deadline | None) -> Remains:
    """The temporary resources in the build region, and failed copies in the other regions."""
    with service_clients(run.environ, place.auth, deadline=deadline) as clients:
        _reject_other_account(clients, place)
        return remains.find(functools.partial(clients, "ec2"), place.region, place.copy_regions)


def remove(place: Place, leftovers: Sequence[Leftover], run: RunFacts) -> Iterator[tuple[Leftover, str]]:
    """Remove instances first, then the resources that they used."""
    with service_clients(run.environ, place.auth) as clients:
        _reject_other_account(clients, place)
        for region in dict.fromkeys(leftover.region for leftover in leftovers):
            in_region = [leftover for leftover in leftovers if leftover.region == region]
            with explain_errors(f"removing leftovers in {region}", PublishError):
                yield from remains.remove(clients("ec2", region), in_region, Clock())


def _reject_other_account(clients: ServiceClients, place: Place) -> None:
    account = _account(clients, place.region)
    # Journals of earlier versions have no account.
    if place.account not in ("", account):
        raise RefusedError(
            f"cannot read account {place.account} in {place.region}: the credentials belong to account {account}",
            hint=f"run `imagegen janitor` with credentials of account {place.account}",
        )


def _account(clients: ServiceClients, region: str) -> str:
    with explain_errors(f"reading the account in {region}", RefusedError, service="sts"):
        return str(clients("sts", region).get_caller_identity()["Account"])


PROVIDER: Final = Provider[Settings, Place](
    name="aws",
    plugin=NeededPlugin("amazon", "1.2.6", Pin("github.com/hashicorp/packer-plugin-amazon", "v1.8.2", 136)),
    builder="amazon-ebs",
    # EC2's error codes, and texts for spot fleets, where the plugin prints no code. `Unsupported` alone would also
    # match other errors.
    no_capacity=frozenset(
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
    ),
    # Static keys, profiles, web identities, and roles of containers and instances.
    environment=frozenset({"AWS_*"}),
    # As the plugin prints them; launch templates belong to spot fleets.
    traces=r"\b(?:i|lt)-[0-9a-f]{8,17}\b"
    r"|\btemporary (?:keypair|security group for this instance): packer_[-0-9a-f]+",
    advice="The password of the instance is lost. With an instance profile for Systems Manager, inspect it with "
    "`aws ssm start-session --target ID`.\n"
    "To remove it: `aws ec2 terminate-instances --instance-ids ID`, then `aws ec2 delete-key-pair --key-name NAME` and "
    "`aws ec2 delete-security-group`.",
    base_form=images.BASE_FORM,
    place_model=Place,
    base_request=images.base_request,
    look_up_base=look_up_base,
    quick_checks=checks.quick_checks,
    thorough_checks=checks.thorough_checks,
    builder_sizes=lambda settings: settings.instance_types,
    image_tags=source.image_tags,
    source_values=source.source_values,
    find_built=find_built,
    read_built=read_built,
    mark=mark,
    build_again=build_again,
    publish=publish,
    place=place,
    leftovers=leftovers,
    remove=remove,
    # EC2Launch runs what stands between these tags, as SYSTEM.
    boot_files={"bootstrap.ps1": BootFile("user-data.txt", b"<powershell>\n", b"</powershell>\n")},
)
