"""The checks on Azure before a build, so that a hopeless build fails early. They create nothing."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.azure import base, existing, permissions, sizes
from imagegen.providers.azure.arm import Arm, resource_manager
from imagegen.providers.azure.client import compute
from imagegen.providers.azure.definition import Definition, check_definition, definition_of, is_version_name
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.numbering import version_by_rule
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import OK, SIGN_IN, UNKNOWN, WRONG, Check, is_stopped, run_check
from imagegen.providers.deadline import THOROUGH_LIMIT_S, Deadline
from imagegen.providers.tags import IMAGE_ID

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec

_SUBSCRIPTIONS_API: Final = "2022-12-01"
_GALLERIES_API: Final = "2024-03-03"
_SUCCEEDED: Final = "Succeeded"


def quick_checks(settings: Settings, run: RunFacts) -> list[Check]:
    """Check sign-in, regions and the image definition, in three requests."""

    def look() -> Iterator[Check]:
        with resource_manager(run.environ, settings.auth, Deadline()) as arm:
            yield from run_quick_checks(arm, settings)

    # Without a subscription or secret there was no request.
    return [dataclasses.replace(check, stops=check.subject == SIGN_IN) for check in run_check(SIGN_IN, look)]


def thorough_checks(spec: Spec[Settings], request: Mapping[str, str], run: RunFacts) -> list[Check]:
    """Check the base image, the version, sizes and quotas, the resources that the config names, and permissions."""
    auth, deadline = spec.settings.auth, Deadline(THOROUGH_LIMIT_S)

    def look_up() -> Iterator[Check]:
        with explain_errors("looking up the base image", RefusedError), compute(run.environ, auth, deadline) as client:
            identity = base.look_up_base(client, request).identity
        yield Check("base image", OK, ":".join(identity[part] for part in ("publisher", "offer", "sku", "version")))

    def look() -> Iterator[Check]:
        with resource_manager(run.environ, auth, deadline) as arm:
            yield from run_thorough_checks(arm, spec.settings, spec.config.kubernetes.version)

    return [*run_check("base image", look_up), *run_check(SIGN_IN, look)]


def run_quick_checks(arm: Arm, settings: Settings) -> list[Check]:
    """The quick checks with this client."""
    checks = [dataclasses.replace(check, stops=True) for check in run_check(SIGN_IN, lambda: _subscription(arm))]
    if is_stopped(checks):
        return checks
    checks += run_check("regions", lambda: _regions(arm, settings))
    subject = f"image definition {definition_of(settings)}"
    return [*checks, *run_check(subject, lambda: _image_definition(arm, settings, subject))]


def run_thorough_checks(arm: Arm, settings: Settings, kubernetes: str) -> list[Check]:
    """The slower checks with this client."""
    return [
        *run_check("version", lambda: _number(arm, settings, kubernetes)),
        *sizes.size_checks(arm, settings),
        *existing.existing_checks(arm, settings),
        *permissions.permission_checks(arm, settings),
    ]


def _subscription(arm: Arm) -> Iterator[Check]:
    with explain_errors("signing in", RefusedError):
        subscription = arm.get(arm.root, _SUBSCRIPTIONS_API)
    if subscription is None:
        yield Check(
            SIGN_IN,
            WRONG,
            f"these credentials have no access to the subscription {arm.subscription}",
            "check AZURE_SUBSCRIPTION_ID, and that these credentials have a role in it",
        )
        return
    name = subscription.get("displayName") or arm.subscription
    state = subscription.get("state") or "unknown"
    if state in ("Disabled", "Deleted"):
        yield Check(SIGN_IN, WRONG, f"the subscription {name} is {state}", "enable it, or set another subscription")
    else:
        yield Check(SIGN_IN, OK, f"subscription {name}, {arm.subscription}: {state}")


def _regions(arm: Arm, settings: Settings) -> Iterator[Check]:
    with explain_errors("asking which regions there are", RefusedError):
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
        return Check(subject, OK, "available in the subscription")
    nearest = difflib.get_close_matches(region, known, n=3)
    return Check(
        subject,
        WRONG,
        "the subscription has no region of this name",
        f"write {' or '.join(nearest)}, or {instead}" if nearest else instead,
    )


def _path(arm: Arm, definition: Definition) -> str:
    group = f"{arm.root}/resourceGroups/{definition.resource_group}"
    return f"{group}/providers/Microsoft.Compute/galleries/{definition.gallery}/images/{definition.name}"


def _image_definition(arm: Arm, settings: Settings, subject: str) -> Iterator[Check]:
    definition = definition_of(settings)
    with explain_errors(f"reading the image definition {definition}", RefusedError):
        image = arm.get(_path(arm, definition), _GALLERIES_API)
    if image is None:
        yield Check(subject, WRONG, "it does not exist", definition.missing)
        return
    yield from check_definition(definition, image["properties"], settings.generation, settings.security_type)


def _number(arm: Arm, settings: Settings, kubernetes: str) -> Iterator[Check]:
    """Check that a version that the config decides is free; one from the time always is."""
    name = version_by_rule(settings.gallery.version, kubernetes)
    definition = definition_of(settings)
    if name is None:
        return
    subject = f"version {definition}/{name}"
    instead = "set targets.azure.gallery.version to date"
    if not is_version_name(name):
        yield Check(subject, WRONG, "a gallery version needs three integers", instead)
        return
    with explain_errors(f"reading {subject}", RefusedError):
        existing_version = arm.get(f"{_path(arm, definition)}/versions/{name}", _GALLERIES_API)
    state = (existing_version or {}).get("properties", {}).get("provisioningState")
    if existing_version is None:
        yield Check(subject, OK, "the version is free")
    elif state == _SUCCEEDED and IMAGE_ID in (existing_version.get("tags") or {}):
        # Only a lock tells which image it is.
        yield Check(
            subject,
            UNKNOWN,
            "it exists: `build` publishes it if it is the image of this config, and otherwise fails",
            f"if it is another image, {instead}",
        )
    else:
        yield Check(
            subject,
            WRONG,
            f"it exists already ({state}), and imagegen never overwrites a version",
            f"{instead}, or delete it: `{definition.deletion(name)}`",
        )
