"""AWS as `imagegen.providers.Provider` wants it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import pydantic

from imagegen.errors import PublishError, RefusedError
from imagegen.providers.aws import base, checks, images, removal, source
from imagegen.providers.aws import leftovers as remains
from imagegen.providers.aws import publish as publishing
from imagegen.providers.aws.client import ec2_clients, explained, service_clients
from imagegen.providers.aws.place import Place
from imagegen.providers.tags import REPORT
from imagegen.providers.waiting import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.artifacts.lock import LockedBase
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Leftover, Published, Remains, Run
    from imagegen.providers.aws.client import ServiceClients
    from imagegen.providers.aws.settings import Settings
    from imagegen.providers.checks import Check
    from imagegen.providers.deadline import Deadline

PLUGIN: Final = "amazon"
PLUGIN_SINCE: Final = "1.2.6"
# EC2's codes, and then its sentences: of what a spot fleet was refused for, the plugin prints only these. One code is
# a word that other failures say too.
NO_CAPACITY: Final = frozenset(
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
ENVIRONMENT: Final = frozenset({"AWS_*"})
# As the plugin says it made them; launch templates are spot fleets'.
TRACES: Final = (
    r"\b(?:i|lt)-[0-9a-f]{8,17}\b|\btemporary (?:keypair|security group for this instance): packer_[-0-9a-f]+"
)
ADVICE: Final = (
    "The instance's password is lost. With an instance profile for Systems Manager, look into it with "
    "`aws ssm start-session --target ID`.\n"
    "To remove it: `aws ec2 terminate-instances --instance-ids ID`, then `aws ec2 delete-key-pair --key-name NAME` and "
    "`aws ec2 delete-security-group`."
)

BASE_FORM: Final = base.BASE_FORM


def base_request(settings: Settings, offered: Mapping[str, str]) -> dict[str, str]:
    """What to look up as base image."""
    return base.base_request(settings, offered)


def look_up_base(settings: Settings, request: Mapping[str, str], run: Run) -> LockedBase:
    """The newest image that the request describes."""
    auth = settings.auth.model_dump(mode="json")
    with ec2_clients(run.environ, auth) as clients, explained("looking up the base image", RefusedError):
        return base.look_up_base(clients(request["region"]), request)


def quick_checks(settings: Settings, run: Run) -> list[Check]:
    """Sign-in, regions, and what the config names of the account's own."""
    return checks.quick_checks(settings, run)


def thorough_checks(
    settings: Settings,
    request: Mapping[str, str],
    versions: Mapping[str, str],  # noqa: ARG001 - the protocol's signature
    run: Run,
) -> list[Check]:
    """The base image, sizes and quotas, keys, and permissions by dry run."""
    return checks.thorough_checks(settings, request, run)


def build_settings(settings: Settings) -> dict[str, Any]:
    """What the source template and the client need."""
    return source.build_settings(settings)


def source_values(plan: BuildPlan) -> dict[str, Any]:
    """What was asked for, and the base image of the region."""
    return source.source_values(plan.build.settings, plan.build.base_place["ami_id"])


def plugin_since(build: Mapping[str, Any], versions: int) -> str:  # noqa: ARG001 - the protocol's signature
    """The same for every build: no setting needs a newer plugin."""
    return PLUGIN_SINCE


def builder_sizes(plan: BuildPlan) -> list[str]:
    """The instance types to try, in order."""
    return list(plan.build.settings["instance_types"])


def secret_variables(plan: BuildPlan) -> frozenset[str]:  # noqa: ARG001 - the protocol's signature
    """None: the chain's variables have AWS' own names."""
    return frozenset()


def publish_settings(settings: Settings) -> dict[str, Any]:
    """What publish needs."""
    return source.publish_settings(settings)


def find_built(plan: BuildPlan, run: Run, console: Console) -> CloudImage | None:  # noqa: ARG001 - the protocol's
    """The newest AMI of this plan and these labels in the build region, available or about to be."""
    settings = plan.build.settings
    region = settings["region"]
    doing = f"looking for built images in {region}"
    with ec2_clients(run.environ, settings["auth"]) as clients, explained(doing, RefusedError):
        known = images.images_of(clients(region), plan.image_id, run.labels)
    found = images.newest_usable(image for image in known if images.as_planned(image, settings))
    return images.cloud_image(found, region) if found else None


def mark(plan: BuildPlan, image: CloudImage, report: str, run: Run) -> None:
    """A tag of the AMI."""
    with (
        ec2_clients(run.environ, plan.build.settings["auth"]) as clients,
        explained(f"tagging {image.id}", PublishError),
    ):
        clients(image.region).create_tags(Resources=[image.id], Tags=[{"Key": REPORT, "Value": report}])


def build_variables(plan: BuildPlan, run: Run) -> dict[str, str]:  # noqa: ARG001 - the protocol's
    """None: an AMI's name comes from the template's own timestamp."""
    return {}


def clean_up(plan: BuildPlan, variables: Mapping[str, str], run: Run, console: Console) -> None:
    """Nothing: Packer deletes all that it makes on AWS."""


def place(build: Mapping[str, Any], publish: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """The regions of an account, as whoever the config says: other credentials may be another account's."""
    with service_clients(run.environ, build["auth"]) as clients:
        account = _account(clients, build["region"])
    copy_regions = [region for region in publish["regions"] if region != build["region"]]
    return {"region": build["region"], "copy_regions": copy_regions, "auth": build["auth"], "account": account}


def claim(plan: BuildPlan, run: Run) -> str:  # noqa: ARG001 - the protocol's signature
    """Nothing: an AMI's name is made of the time and of a random number."""
    return ""


def is_place(place: Mapping[str, Any]) -> bool:
    """Whether `place` made this, as far as its form says."""
    try:
        Place.model_validate(place)
    except pydantic.ValidationError:
        return False
    return True


def leftovers(
    place: Mapping[str, Any],
    run: Run,
    deadline: Deadline | None = None,
    *,
    usual: bool = True,  # noqa: ARG001 - the protocol's signature: a build on AWS leaves nothing
) -> Remains:
    """What builds have in their region, and what failed copies left in the others."""
    region = place["region"]
    with service_clients(run.environ, place["auth"], deadline=deadline) as clients:
        _refuse_other_account(clients, place)
        return remains.find(functools.partial(clients, "ec2"), region, place.get("copy_regions", ()))


def remove(place: Mapping[str, Any], leftovers: Sequence[Leftover], run: Run) -> Iterator[tuple[Leftover, str]]:
    """Machines first, then what they used."""
    with service_clients(run.environ, place["auth"]) as clients:
        _refuse_other_account(clients, place)
        for region in dict.fromkeys(leftover.region for leftover in leftovers):
            there = [leftover for leftover in leftovers if leftover.region == region]
            with explained(f"removing leftovers in {region}", PublishError):
                yield from removal.remove(clients("ec2", region), there, Clock())


def _refuse_other_account(clients: ServiceClients, place: Mapping[str, Any]) -> None:
    found = _account(clients, place["region"])
    # Journals of earlier versions name none.
    recorded = place.get("account", found)
    if found != recorded:
        raise RefusedError(
            f"account {recorded} in {place['region']} cannot be looked at: the credentials are those of {found}",
            hint=f"run `imagegen janitor` with credentials of account {recorded}",
        )


def _account(clients: ServiceClients, region: str) -> str:
    with explained(f"asking whose account it is in {region}", RefusedError, service="sts"):
        account: str = clients("sts", region).get_caller_identity()["Account"]
    return account


def publish(plan: BuildPlan, built: CloudImage, run: Run, console: Console) -> Published:
    """Copies in the plan's regions."""
    with ec2_clients(run.environ, plan.build.settings["auth"]) as clients, explained("publishing", PublishError):
        return publishing.publish(clients, plan, built, run, console, Clock())
