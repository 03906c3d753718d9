"""What Azure is asked before a build, so that what cannot succeed fails at once. Nothing is made by it."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.providers.azure import base, existing, permissions, sizes
from imagegen.providers.azure.arm import resource_manager
from imagegen.providers.azure.client import compute
from imagegen.providers.azure.definition import Definition, check_definition, definition_of, is_version_name
from imagegen.providers.azure.failures import explained
from imagegen.providers.azure.numbering import version_by_rule
from imagegen.providers.checks import OK, SIGN_IN, UNKNOWN, WRONG, Check, is_stopped, run_check
from imagegen.providers.deadline import THOROUGH_LIMIT_S, Deadline
from imagegen.providers.tags import IMAGE_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.providers import Run
    from imagegen.providers.azure.arm import Arm
    from imagegen.providers.azure.settings import Settings
    from imagegen.settle.spec import Spec

_SUBSCRIPTIONS_API: Final = "2022-12-01"
_GALLERIES_API: Final = "2024-03-03"
_SUCCEEDED: Final = "Succeeded"


def quick_checks(settings: Settings, run: Run) -> list[Check]:
    """Sign-in, regions and the image definition: three requests."""

    def look() -> Iterator[Check]:
        with resource_manager(run.environ, settings.auth, Deadline()) as arm:
            yield from ask_quickly(arm, settings)

    # Where no subscription or no secret is named, nothing was asked.
    return [dataclasses.replace(check, stops=check.subject == SIGN_IN) for check in run_check(SIGN_IN, look)]


def thorough_checks(spec: Spec[Settings], request: Mapping[str, str], run: Run) -> list[Check]:
    """What takes longer: the base image, the number, sizes and quotas, what the config names, and permissions."""
    auth, deadline = spec.settings.auth, Deadline(THOROUGH_LIMIT_S)

    def look_up() -> Iterator[Check]:
        with explained("looking up the base image", RefusedError), compute(run.environ, auth, deadline) as client:
            found = base.look_up_base(client, request).identity
        yield Check("base image", OK, ":".join(found[part] for part in ("publisher", "offer", "sku", "version")))

    def look() -> Iterator[Check]:
        with resource_manager(run.environ, auth, deadline) as arm:
            yield from ask_thoroughly(arm, spec.settings, spec.config.kubernetes.version)

    return [*run_check("base image", look_up), *run_check(SIGN_IN, look)]


def ask_quickly(arm: Arm, settings: Settings) -> list[Check]:
    """What the Resource Manager answers to the first questions."""
    checks = [dataclasses.replace(check, stops=True) for check in run_check(SIGN_IN, lambda: _subscription(arm))]
    if is_stopped(checks):
        return checks
    checks += run_check("regions", lambda: _regions(arm, settings))
    subject = f"image definition {definition_of(settings)}"
    return [*checks, *run_check(subject, lambda: _image_definition(arm, settings, subject))]


def ask_thoroughly(arm: Arm, settings: Settings, kubernetes: str) -> list[Check]:
    """What the Resource Manager answers to the others."""
    return [
        *run_check("version", lambda: _number(arm, settings, kubernetes)),
        *sizes.size_checks(arm, settings),
        *existing.existing_checks(arm, settings),
        *permissions.permission_checks(arm, settings),
    ]


def _subscription(arm: Arm) -> Iterator[Check]:
    with explained("signing in", RefusedError):
        found = arm.get(arm.root, _SUBSCRIPTIONS_API)
    if found is None:
        yield Check(
            SIGN_IN,
            WRONG,
            f"these credentials see no subscription {arm.subscription}",
            "check AZURE_SUBSCRIPTION_ID, and that these credentials have a role in it",
        )
        return
    name, state = found.get("displayName") or arm.subscription, found.get("state") or "unknown"
    if state in ("Disabled", "Deleted"):
        yield Check(SIGN_IN, WRONG, f"the subscription {name} is {state}", "enable it, or name another subscription")
    else:
        yield Check(SIGN_IN, OK, f"subscription {name}, {arm.subscription}: {state}")


def _regions(arm: Arm, settings: Settings) -> Iterator[Check]:
    with explained("asking which regions there are", RefusedError):
        known = {location["name"] for location in arm.listed(f"{arm.root}/locations", _SUBSCRIPTIONS_API)}
    yield _region("build region", settings.location, known, "choose another targets.azure.location")
    for region in settings.publish.regions:
        yield dataclasses.replace(
            _region("publish region", region, known, f"leave {region} out of targets.azure.publish.regions"),
            of_publishing=True,
        )


def _region(what: str, region: str, known: set[str], instead: str) -> Check:
    subject = f"{what} {region}"
    if region in known:
        return Check(subject, OK, "the subscription has it")
    nearest = difflib.get_close_matches(region, known, n=3)
    return Check(
        subject,
        WRONG,
        "the subscription has no region of this name",
        f"write {' or '.join(nearest)}, or {instead}" if nearest else instead,
    )


def _path(arm: Arm, definition: Definition) -> str:
    galleries = f"{arm.root}/resourceGroups/{definition.resource_group}/providers/Microsoft.Compute/galleries"
    return f"{galleries}/{definition.gallery}/images/{definition.name}"


def _image_definition(arm: Arm, settings: Settings, subject: str) -> Iterator[Check]:
    definition = definition_of(settings)
    with explained(f"reading the image definition {definition}", RefusedError):
        found = arm.get(_path(arm, definition), _GALLERIES_API)
    if found is None:
        yield Check(subject, WRONG, "it is not there", definition.missing)
        return
    yield from check_definition(definition, found["properties"], settings.generation, settings.security_type)


def _number(arm: Arm, settings: Settings, kubernetes: str) -> Iterator[Check]:
    """A number that the config alone decides is free; one made of the time always is."""
    name = version_by_rule(settings.gallery.version, kubernetes)
    definition = definition_of(settings)
    if name is None:
        return
    subject = f"version {definition}/{name}"
    instead = "set targets.azure.gallery.version to date"
    if not is_version_name(name):
        yield Check(subject, WRONG, "a gallery wants three integers", instead)
        return
    with explained(f"asking about {subject}", RefusedError):
        found = arm.get(f"{_path(arm, definition)}/versions/{name}", _GALLERIES_API)
    state = (found or {}).get("properties", {}).get("provisioningState")
    if found is None:
        yield Check(subject, OK, "the number is free")
    elif state == _SUCCEEDED and IMAGE_ID in (found.get("tags") or {}):
        # Which image it is follows from a lock.
        yield Check(
            subject,
            UNKNOWN,
            "it is there: if it is this config's image, `build` publishes it, and else refuses",
            f"if it is another image, {instead}",
        )
    else:
        yield Check(
            subject,
            WRONG,
            f"it is there already ({state}), and is never overwritten",
            f"{instead}, or delete it: `{definition.deletion(name)}`",
        )
