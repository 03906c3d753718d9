"""Azure as `imagegen.providers.Provider` wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imagegen.errors import PublishError, RefusedError
from imagegen.providers.azure import base, gallery
from imagegen.providers.azure import publish as publishing
from imagegen.providers.azure.client import compute, explained
from imagegen.providers.waiting import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.artifacts.lock import LockedBase
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Published, Run
    from imagegen.providers.azure.settings import Settings

PLUGIN: Final = "azure"
PLUGIN_SINCE: Final = "1.4.5"


def base_request(settings: Settings, windows: Mapping[str, Any]) -> dict[str, str]:
    """What to look up as base image."""
    return base.base_request(settings, windows)


def look_up_base(request: Mapping[str, str], run: Run) -> LockedBase:
    """The newest image that the request describes."""
    with explained("looking up the base image", RefusedError), compute(run.environ) as client:
        return base.look_up_base(client, request)


def build_settings(settings: Settings) -> dict[str, Any]:
    """What the source template needs."""
    return {
        "location": settings.location,
        "vm_size": settings.vm_size,
        "resource_group": settings.gallery.resource_group,
        "gallery": settings.gallery.name,
        "definition": settings.gallery.definition,
    }


def source_values(plan: BuildPlan) -> dict[str, Any]:
    """The settings, and the gallery version where the config alone decides it."""
    fixed = plan.image.versions["kubernetes"] if plan.publish.settings["version"] == "kubernetes" else ""
    return {**plan.build.settings, "version": fixed}


def publish_settings(settings: Settings) -> dict[str, Any]:
    """What publish needs; the Kubernetes version of the `kubernetes` rule is the image's own."""
    return {"regions": list(settings.publish.regions), "version": settings.gallery.version}


def find_built(plan: BuildPlan, run: Run) -> CloudImage | None:
    """The highest gallery version of this plan and these labels."""
    with explained("looking for built images", RefusedError), compute(run.environ) as client:
        return gallery.find_built(client, plan, run)


def build_variables(plan: BuildPlan, run: Run) -> dict[str, str]:
    """The gallery version to build, which is free at this moment."""
    with explained("numbering the image", RefusedError), compute(run.environ) as client:
        return {"gallery_image_version": gallery.next_version(client, plan, run)}


def publish(plan: BuildPlan, built: CloudImage, run: Run, console: Console) -> Published:
    """Replicas in the plan's regions, and a place in `latest`."""
    with explained("publishing", PublishError), compute(run.environ) as client:
        return publishing.publish(client, plan, built, console, Clock())
