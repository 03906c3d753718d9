"""The number of a gallery version: by the time of the run, the Kubernetes version, or the config's own."""

from __future__ import annotations

import datetime
import itertools
from typing import TYPE_CHECKING

from imagegen.errors import RefusedError
from imagegen.providers.azure.definition import Definition, definition_of, is_version_name, state_word
from imagegen.providers.azure.gallery import CREATING, FAILED, reason_of_failure

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.plan.model import BuildPlan
    from imagegen.providers import Run
    from imagegen.providers.azure.settings import Settings

# How many runs of the same second have numbers of their own; 235959 of them fit below the largest number.
PER_SECOND = 1000


def next_version(client: ComputeManagementClient, plan: BuildPlan[Settings], run: Run, chance: int) -> str:
    """The number that a build of this plan gets, by the config's rule; one that exists is never built over.

    `chance`, below PER_SECOND, tells apart two runs that begin in the same second: neither sees the other's version
    before it is captured, hours later.
    """
    definition = definition_of(plan.settings)
    taken = {version.name or "": version for version in definition.versions(client)}
    if (fixed := fixed_version(plan)) is not None:
        _check_free(client, fixed, plan.settings.gallery.version, definition, taken)
        return fixed
    time = datetime.datetime.fromisoformat(run.started).astimezone(datetime.UTC)
    patch = int(time.strftime("%H%M%S")) * PER_SECOND + chance
    candidates = (f"{time.year}.{time.month * 100 + time.day}.{patch + more}" for more in itertools.count())
    return next(candidate for candidate in candidates if candidate not in taken)


def fixed_version(plan: BuildPlan[Settings]) -> str | None:
    """The number that the config alone decides; None where it is made of the time."""
    return version_by_rule(plan.settings.gallery.version, plan.image.versions["kubernetes"])


def version_by_rule(rule: str, kubernetes: str) -> str | None:
    """The number of a config's rule; None where it is made of the time."""
    if rule == "date":
        return None
    return kubernetes if rule == "kubernetes" else rule


def _check_free(
    client: ComputeManagementClient,
    version: str,
    rule: str,
    definition: Definition,
    taken: dict[str, GalleryImageVersion],
) -> None:
    if not is_version_name(version):
        what = f"Kubernetes {version}" if rule == "kubernetes" else version
        raise RefusedError(
            f"{what} cannot number an image version: a gallery wants three integers",
            hint="set targets.azure.gallery.version to date",
        )
    if version not in taken:
        return
    label, instead = f"{definition}/{version}", "date" if rule == "kubernetes" else "another number or to date"
    another = f"set targets.azure.gallery.version to {instead}"
    state = state_word(taken[version].provisioning_state)
    if state == FAILED:
        raise RefusedError(
            f"{label} exists and is in state Failed ({reason_of_failure(client, definition, version)}): "
            "Azure creates no second version with the same number",
            hint=f"delete it: `{definition.deletion(version)}`, or {another}",
        )
    if state == CREATING:
        raise RefusedError(
            f"{label} is being made by another build", hint=f"wait for it and run the same command again, or {another}"
        )
    raise RefusedError(
        f"{label} exists already, and a published version is never overwritten",
        hint=f"{another}, or delete that version yourself",
    )
