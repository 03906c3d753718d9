"""Checks whether Azure offers a suitable size for the builder, within the vCPU quota."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, NotRequired, TypedDict

from imagegen.errors import RefusedError
from imagegen.providers.azure.arm import Arm
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import UNKNOWN, Check, check_sizes, run_check

_SKUS_API: Final = "2021-07-01"
_USAGES_API: Final = "2024-07-01"
_REGION: Final = "cores"
_SPOT: Final = "lowPriorityCores"


@dataclasses.dataclass(frozen=True)
class _Size:
    name: str
    family: str
    vcpus: int


class _Pair(TypedDict):
    name: str
    value: str


class _Restriction(TypedDict, total=False):
    type: str
    reasonCode: str


class _Sku(TypedDict):
    """A size in the API of SKUs."""

    name: str
    family: str
    capabilities: NotRequired[list[_Pair]]
    restrictions: NotRequired[list[_Restriction]]


class _Usage(TypedDict):
    limit: int
    currentValue: int


def size_checks(arm: Arm, settings: Settings) -> list[Check]:
    """Check which sizes the subscription can use in the region, and whether the quotas allow one of each."""
    usable: list[_Size] = []
    checks = run_check("sizes", lambda: _sizes(arm, settings, usable))
    if usable:
        checks += run_check("vCPU quota", lambda: _quotas(arm, settings, usable))
    return checks


def _sizes(arm: Arm, settings: Settings, usable: list[_Size]) -> Iterator[Check]:
    """Check the sizes; adds the usable ones to `usable`, for the check of quotas."""
    place = settings.location
    with explain_errors(f"asking which sizes {place} offers", RefusedError):
        path = f"{arm.root}/providers/Microsoft.Compute/skus"
        skus = list(arm.listed(path, _SKUS_API, **{"$filter": f"location eq '{place}'"}))
    machines = {sku["name"].lower(): sku for sku in skus if sku["resourceType"] == "virtualMachines"}
    fitting, others = [], []
    for name in settings.vm_sizes:
        sku = machines.get(name.lower())
        reason = f"is not offered in {place}" if sku is None else _unfit(sku, settings)
        if sku is None or reason:
            others.append(f"{name} {reason}")
            continue
        usable.append(_Size(name, sku["family"], int(_capabilities(sku).get("vCPUs", "0"))))
        fitting.append(f"{name} is offered in {place}")
    yield check_sizes("sizes", fitting, others, "write another size to targets.azure.vm_sizes")


def _unfit(sku: _Sku, settings: Settings) -> str:
    """The reason why an offered size cannot be used; empty where it can."""
    for restriction in sku.get("restrictions") or []:
        if restriction.get("type") == "Location":
            return f"is not available in {settings.location} ({restriction.get('reasonCode') or 'restricted'})"
    capabilities = _capabilities(sku)
    generations = capabilities.get("HyperVGenerations", "V1").split(",")
    if f"V{settings.generation}" not in generations:
        return f"supports only generation {' and '.join(generations)}"
    if settings.security_type == "TrustedLaunch" and capabilities.get("TrustedLaunchDisabled", "").lower() == "true":
        return "does not support TrustedLaunch"
    if settings.security_type == "ConfidentialVM" and not capabilities.get("ConfidentialComputingType"):
        return "does not support ConfidentialVM"
    return ""


def _capabilities(sku: _Sku) -> dict[str, str]:
    return {pair["name"]: str(pair["value"]) for pair in sku.get("capabilities") or []}


def _quotas(arm: Arm, settings: Settings, sizes: Sequence[_Size]) -> Iterator[Check]:
    place = settings.location
    path = f"{arm.root}/providers/Microsoft.Compute/locations/{place}/usages"
    with explain_errors(f"asking for the vCPU quotas of {place}", RefusedError):
        usages = {str(usage["name"]["value"]).lower(): usage for usage in arm.listed(path, _USAGES_API)}
    fitting: list[str] = []
    others: list[str] = []
    for size in sizes:
        counters = [_SPOT] if settings.spot is not None else [_REGION, size.family]
        left = {counter: _left(usages.get(counter.lower())) for counter in counters}
        if unlisted := [counter for counter, room in left.items() if room is None]:
            yield Check(f"vCPU quota for {size.name}", UNKNOWN, f"Azure does not list {' and '.join(unlisted)}")
            continue
        full = {counter: room for counter, room in left.items() if room is not None and room < size.vcpus}
        rooms = ", ".join(f"{room} left of {counter}" for counter, room in (full or left).items())
        (others if full else fitting).append(f"{size.name} needs {size.vcpus} vCPUs: {rooms}")
    if fitting or others:
        yield check_sizes(
            "vCPU quota",
            fitting,
            others,
            f"request more for {place} (portal: Subscriptions, Usage + quotas), or write a size of another family",
        )


def _left(usage: _Usage | None) -> int | None:
    return None if usage is None else int(usage["limit"]) - int(usage["currentValue"])
