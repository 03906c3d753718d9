"""AWS as `imagegen.providers.Provider` wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import PublishError, RefusedError
from imagegen.providers.aws import base, images
from imagegen.providers.aws import publish as publishing
from imagegen.providers.aws.client import ec2_clients, explained
from imagegen.providers.waiting import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.artifacts.lock import LockedBase
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Published, Run
    from imagegen.providers.aws.settings import Settings

PLUGIN: Final = "amazon"
PLUGIN_SINCE: Final = "1.2.6"


def base_request(settings: Settings, windows: Mapping[str, Any]) -> dict[str, str]:
    """What to look up as base image."""
    return base.base_request(settings, windows)


def look_up_base(request: Mapping[str, str], run: Run) -> LockedBase:
    """The newest image that the request describes."""
    doing = "looking up the base image"
    with ec2_clients(run.environ) as clients, explained(doing, RefusedError):
        return base.look_up_base(clients(request["region"]), request)


def build_settings(settings: Settings) -> dict[str, Any]:
    """What the source template needs."""
    return settings.model_dump(mode="json", include={"region", "instance_type", "disk_size_gb", "allowed_cidrs"})


def source_values(plan: BuildPlan) -> dict[str, Any]:
    """The settings and the base image of the region."""
    return {**plan.build.settings, "source_ami": plan.build.base_place["ami_id"]}


def publish_settings(settings: Settings) -> dict[str, Any]:
    """What publish needs."""
    return {"regions": list(settings.publish.regions)}


def find_built(plan: BuildPlan, run: Run) -> CloudImage | None:
    """The newest AMI of this plan and these labels in the build region, available or about to be."""
    region = plan.build.settings["region"]
    with ec2_clients(run.environ) as clients, explained(f"looking for built images in {region}", RefusedError):
        found = images.newest_usable(images.images_of(clients(region), plan.image_id, run.labels))
    return images.cloud_image(found, region) if found else None


def build_variables(plan: BuildPlan, run: Run) -> dict[str, str]:  # noqa: ARG001 - the protocol's signature
    """None: an AMI's name comes from the template's own timestamp."""
    return {}


def publish(plan: BuildPlan, built: CloudImage, run: Run, console: Console) -> Published:
    """Copies in the plan's regions."""
    with ec2_clients(run.environ) as clients, explained("publishing", PublishError):
        return publishing.publish(clients, plan, built, run, console, Clock())
