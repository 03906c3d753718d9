"""The checks on Azure before a build, so that a hopeless build fails early. They create nothing."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

from imagegen.base.errors import RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.azure.client import Arm, compute, resource_manager, why_packer_cannot_sign_in
from imagegen.providers.azure.disks import has_premium_storage
from imagegen.providers.azure.existing import definition_checks, existing_checks, group_checks, version_checks
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.settings import Settings
from imagegen.providers.azure.source import look_up_base
from imagegen.providers.checks import OK, SIGN_IN, UNKNOWN, WRONG, Check, check_sizes, is_stopped, run_check
from imagegen.providers.time_limits import THOROUGH_LIMIT_S, Deadline

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec

_SUBSCRIPTIONS_API: Final = "2022-12-01"
_IN_GALLERY: Final = (
    "Microsoft.Compute/galleries/read",
    "Microsoft.Compute/galleries/images/read",
    "Microsoft.Compute/galleries/images/versions/read",
    "Microsoft.Compute/galleries/images/versions/write",
)
_IN_BUILD: Final = (
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/generalize/action",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Resources/deployments/write",
)
_TEMPORARY_VAULT: Final = ("Microsoft.KeyVault/vaults/write", "Microsoft.KeyVault/vaults/delete")
_TEMPORARY_GROUP: Final = (
    "Microsoft.Resources/subscriptions/resourceGroups/write",
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
)


class _Size(TypedDict):
    """A size in the API of SKUs."""

    name: str
    family: str
    capabilities: NotRequired[list[dict[str, str]]]
    restrictions: NotRequired[list[dict[str, str]]]


def quick_checks(settings: Settings, run: RunFacts) -> list[Check]:
    """Check sign-in, regions, the image definition and the builder's own resource group, in at most four requests."""

    reason, hint = why_packer_cannot_sign_in(run.environ, settings.auth)
    if reason:
        return [Check(SIGN_IN, WRONG, f"Packer cannot sign in: {reason}", hint, stops=True)]

    def look() -> Iterator[Check]:
        with resource_manager(run.environ, settings.auth, Deadline()) as arm:
            yield from run_quick_checks(arm, settings)

    # Without a subscription or secret there was no request.
    return [dataclasses.replace(check, stops=check.subject == SIGN_IN) for check in run_check(SIGN_IN, look)]


def thorough_checks(spec: Spec[Settings], request: Mapping[str, str], run: RunFacts) -> list[Check]:
    """Check the base image, the version, sizes and quotas, the resources that the config names, and permissions."""
    auth, deadline = spec.settings.auth, Deadline(THOROUGH_LIMIT_S)

    def look_up() -> Iterator[Check]:
        with compute(run.environ, auth, deadline) as client:
            yield Check("base image", OK, ":".join(look_up_base(client, request).identity.values()))

    def look() -> Iterator[Check]:
        with resource_manager(run.environ, auth, deadline) as arm:
            yield from run_thorough_checks(arm, spec.settings, spec.config.kubernetes.version)

    return [
        *run_check("base image", look_up, explain_errors("looking up the base image", RefusedError)),
        *run_check(SIGN_IN, look),
    ]


def run_quick_checks(arm: Arm, settings: Settings) -> list[Check]:
    """The quick checks with this client."""
    signed_in = run_check(SIGN_IN, lambda: _subscription(arm), explain_errors("signing in", RefusedError))
    checks = [dataclasses.replace(check, stops=True) for check in signed_in]
    if is_stopped(checks):
        return checks
    checks += run_check(
        "regions", lambda: _regions(arm, settings), explain_errors("asking which regions there are", RefusedError)
    )
    return [*checks, *definition_checks(arm, settings), *group_checks(arm, settings)]


def run_thorough_checks(arm: Arm, settings: Settings, kubernetes: str) -> list[Check]:
    """The slower checks with this client."""
    usable: dict[str, _Size] = {}
    checks = version_checks(arm, settings, kubernetes)
    checks += run_check(
        "sizes",
        lambda: _sizes(arm, settings, usable),
        explain_errors(f"asking which sizes {settings.location} offers", RefusedError),
    )
    if usable:
        checks += run_check(
            "vCPU quota",
            lambda: _quotas(arm, settings, usable),
            explain_errors(f"asking for the vCPU quotas of {settings.location}", RefusedError),
        )
    return [*checks, *existing_checks(arm, settings), *_permissions(arm, settings)]


def _subscription(arm: Arm) -> list[Check]:
    subscription = arm.get(arm.root, _SUBSCRIPTIONS_API)
    if subscription is None:
        return [
            Check(
                SIGN_IN,
                WRONG,
                f"these credentials have no access to the subscription {arm.subscription}",
                "check AZURE_SUBSCRIPTION_ID, and that these credentials have a role in it",
            )
        ]
    name = subscription.get("displayName") or arm.subscription
    state = subscription.get("state") or "unknown"
    if state in ("Disabled", "Deleted"):
        return [Check(SIGN_IN, WRONG, f"the subscription {name} is {state}", "enable it, or set another subscription")]
    return [Check(SIGN_IN, OK, f"subscription {name}, {arm.subscription}: {state}")]


def _regions(arm: Arm, settings: Settings) -> Iterator[Check]:
    known = {location["name"] for location in arm.listed(f"{arm.root}/locations", _SUBSCRIPTIONS_API)}
    yield _region("build region", settings.location, known, "choose another targets.azure.location")
    for region in settings.publish.regions:
        yield dataclasses.replace(
            _region("publish region", region, known, f"leave {region} out of targets.azure.publish.regions"),
            of_publishing=True,
        )


def _region(what: str, region: str, known: set[str], instead: str) -> Check:
    if region in known:
        return Check(f"{what} {region}", OK, "available in the subscription")
    nearest = difflib.get_close_matches(region, known, n=3)
    return Check(
        f"{what} {region}",
        WRONG,
        "the subscription has no region of this name",
        f"write {' or '.join(nearest)}, or {instead}" if nearest else instead,
    )


def _sizes(arm: Arm, settings: Settings, usable: dict[str, _Size]) -> list[Check]:
    """Check which sizes the subscription can use in the region; adds these to `usable`, for the check of quotas."""
    place = settings.location
    machines = {
        sku["name"].lower(): sku
        for sku in arm.listed(
            f"{arm.root}/providers/Microsoft.Compute/skus", "2021-07-01", **{"$filter": f"location eq '{place}'"}
        )
        if sku["resourceType"] == "virtualMachines"
    }
    others = []
    for name in settings.vm_sizes:
        size = machines.get(name.lower())
        if size is None:
            others.append(f"{name} is not offered in {place}")
        elif reason := _unfit(size, settings):
            others.append(f"{name} {reason}")
        else:
            usable[name] = size
    fitting = [f"{name} is offered in {place}" for name in usable]
    return [check_sizes("sizes", fitting, others, "write another size to targets.azure.vm_sizes")]


def _unfit(size: _Size, settings: Settings) -> str:
    """The reason why an offered size cannot be used; empty where it can."""
    for restriction in size.get("restrictions") or []:
        if restriction.get("type") == "Location":
            return f"is not available in {settings.location} ({restriction.get('reasonCode') or 'restricted'})"
    capabilities = _capabilities(size)
    generations = capabilities.get("HyperVGenerations", "V1").split(",")
    if f"V{settings.generation}" not in generations:
        return f"supports only generation {' and '.join(generations)}"
    if settings.security_type == "TrustedLaunch" and capabilities.get("TrustedLaunchDisabled", "").lower() == "true":
        return "does not support TrustedLaunch"
    if settings.security_type == "ConfidentialVM" and not capabilities.get("ConfidentialComputingType"):
        return "does not support ConfidentialVM"
    if has_premium_storage(size["name"]) and capabilities.get("PremiumIO", "").lower() == "false":
        return "does not support premium storage, although its name says so"
    return ""


def _capabilities(size: _Size) -> dict[str, str]:
    return {pair["name"]: str(pair["value"]) for pair in size.get("capabilities") or []}


def _quotas(arm: Arm, settings: Settings, sizes: Mapping[str, _Size]) -> Iterator[Check]:
    """Check whether the vCPU quotas allow one machine of each size."""
    place = settings.location
    left = {
        str(usage["name"]["value"]).lower(): int(usage["limit"]) - int(usage["currentValue"])
        for usage in arm.listed(f"{arm.root}/providers/Microsoft.Compute/locations/{place}/usages", "2024-07-01")
    }
    fitting: list[str] = []
    others: list[str] = []
    for name, size in sizes.items():
        vcpus = int(_capabilities(size).get("vCPUs", "0"))
        counters = ["lowPriorityCores"] if settings.spot is not None else ["cores", size["family"]]
        if unlisted := [counter for counter in counters if counter.lower() not in left]:
            yield Check(f"vCPU quota for {name}", UNKNOWN, f"Azure does not list {' and '.join(unlisted)}")
            continue
        full = [counter for counter in counters if left[counter.lower()] < vcpus]
        rooms = ", ".join(f"{left[counter.lower()]} left of {counter}" for counter in full or counters)
        (others if full else fitting).append(f"{name} needs {vcpus} vCPUs: {rooms}")
    if fitting or others:
        yield check_sizes(
            "vCPU quota",
            fitting,
            others,
            f"request more for {place} (portal: Subscriptions, Usage + quotas), or write a size of another family",
        )


def _permissions(arm: Arm, settings: Settings) -> list[Check]:
    """Check the permissions in the resource group of the gallery, and where the build creates the builder.

    They are checked by role assignments, because Azure has no dry run.
    """
    group = settings.build_resource_group
    temporary = (*(() if settings.key_vault else _TEMPORARY_VAULT), *(() if group else _TEMPORARY_GROUP))
    return [
        *_permissions_in(arm, settings.gallery.resource_group, _IN_GALLERY),
        *_permissions_in(arm, group, (*_IN_BUILD, *temporary)),
    ]


def _permissions_in(arm: Arm, group: str | None, needed: Sequence[str]) -> list[Check]:
    """Check the permissions in a resource group, or in the whole subscription."""
    subject = f"permissions in {f'resource group {group}' if group else 'the subscription'}"
    path = f"{arm.root}/resourceGroups/{group}" if group else arm.root

    def look() -> Iterator[Check]:
        granted = list(arm.listed(f"{path}/providers/Microsoft.Authorization/permissions", "2022-04-01"))
        if missing := [action for action in needed if not any(_allows(role, action) for role in granted)]:
            yield Check(
                subject,
                WRONG,
                f"no role assignment allows {', '.join(missing)}",
                "give these credentials a role that allows them there, for example Contributor",
            )
        else:
            yield Check(subject, OK, "role assignments allow the build (deny assignments and policies are not read)")

    return run_check(subject, look, explain_errors(f"reading the {subject}", RefusedError))


def _allows(role: Mapping[str, list[str]], action: str) -> bool:
    """Whether a role allows an action."""

    def is_among(kind: str) -> bool:
        return any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in role.get(kind) or [])

    return is_among("actions") and not is_among("notActions")
