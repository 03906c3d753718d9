"""Chooses the gallery version: from the time of the run, the Kubernetes version, or the config."""

from __future__ import annotations

import datetime
import itertools
from typing import TYPE_CHECKING

from imagegen.errors import RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.azure.definition import Definition, definition_of, is_version_name, state_word
from imagegen.providers.azure.gallery import CREATING, FAILED, reason_of_failure
from imagegen.providers.azure.settings import Settings

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.plan.model import BuildPlan

# The versions for runs in the same second; 235959 times this number is below the largest integer.
PER_SECOND = 1000


def next_version(client: ComputeManagementClient, plan: BuildPlan[Settings], run: RunFacts, chance: int) -> str:
    """The version of a build of this plan, by the rule in the config; raises where that version exists.

    `chance`, a random number below PER_SECOND, distinguishes runs that start in the same second: neither sees the
    version of the other before its capture, hours later.
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
    """The version of a plan that the config decides; None where it comes from the time."""
    return version_by_rule(plan.settings.gallery.version, plan.image.versions["kubernetes"])


def version_by_rule(rule: str, kubernetes: str) -> str | None:
    """The version that `gallery.version` decides; None where it comes from the time."""
    return {"date": None, "kubernetes": kubernetes}.get(rule, rule)


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
            f"{what} is not a valid gallery version: it needs three integers",
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
            f"another build is creating {label}", hint=f"wait for it and run the same command again, or {another}"
        )
    raise RefusedError(
        f"{label} exists already, and imagegen never overwrites a version",
        hint=f"{another}, or delete that version",
    )
