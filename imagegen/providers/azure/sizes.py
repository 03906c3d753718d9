"""Whether a builder of one of the config's sizes can be had: offered, of the right kind, and within the quota."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

from imagegen.errors import RefusedError
from imagegen.providers.azure.failures import explained
from imagegen.providers.checks import UNKNOWN, Check, check_sizes, run_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.providers.azure.arm import Arm
    from imagegen.providers.azure.settings import Settings

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
    """What the API of the SKUs tells of a size."""

    name: str
    family: str
    capabilities: NotRequired[list[_Pair]]
    restrictions: NotRequired[list[_Restriction]]


class _Usage(TypedDict):
    limit: int
    currentValue: int


def size_checks(arm: Arm, settings: Settings) -> list[Check]:
    """The sizes that the subscription may use here, and whether the quotas have room for one of each."""
    usable: list[_Size] = []
    checks = run_check("sizes", lambda: _sizes(arm, settings, usable))
    if usable:
        checks += run_check("vCPU quota", lambda: _quotas(arm, settings, usable))
    return checks


def _sizes(arm: Arm, settings: Settings, usable: list[_Size]) -> Iterator[Check]:
    """Fills `usable` too: quotas are looked at for these."""
    place = settings.location
    query = {"$filter": f"location eq '{place}'"}
    with explained(f"asking which sizes {place} offers", RefusedError):
        skus = list(arm.listed(f"{arm.root}/providers/Microsoft.Compute/skus", _SKUS_API, **query))
    machines = {sku["name"].lower(): sku for sku in skus if sku["resourceType"] == "virtualMachines"}
    fitting, others = [], []
    for name in settings.vm_sizes:
        sku = machines.get(name.lower())
        why = f"is not offered in {place}" if sku is None else _unfit(sku, settings)
        if sku is None or why:
            others.append(f"{name} {why}")
            continue
        usable.append(_Size(name, sku["family"], int(_capabilities(sku).get("vCPUs", "0"))))
        fitting.append(f"{name} is offered in {place}")
    yield check_sizes("sizes", fitting, others, "name another size in targets.azure.vm_sizes")


def _unfit(sku: _Sku, settings: Settings) -> str:
    """Why a size that is offered cannot be used; empty where it can."""
    for restriction in sku.get("restrictions") or []:
        if restriction.get("type") == "Location":
            reason = restriction.get("reasonCode") or "restricted"
            return f"may not be used in {settings.location} ({reason})"
    can = _capabilities(sku)
    generations = can.get("HyperVGenerations", "V1").split(",")
    if f"V{settings.generation}" not in generations:
        return f"is of generation {' and '.join(generations)} only"
    if settings.security_type == "TrustedLaunch" and can.get("TrustedLaunchDisabled", "").lower() == "true":
        return "cannot do TrustedLaunch"
    if settings.security_type == "ConfidentialVM" and not can.get("ConfidentialComputingType"):
        return "cannot do ConfidentialVM"
    return ""


def _capabilities(sku: _Sku) -> dict[str, str]:
    return {each["name"]: str(each["value"]) for each in sku.get("capabilities") or []}


def _quotas(arm: Arm, settings: Settings, sizes: Sequence[_Size]) -> Iterator[Check]:
    place = settings.location
    path = f"{arm.root}/providers/Microsoft.Compute/locations/{place}/usages"
    with explained(f"asking for the vCPU quotas of {place}", RefusedError):
        usages = {str(usage["name"]["value"]).lower(): usage for usage in arm.listed(path, _USAGES_API)}
    fitting: list[str] = []
    others: list[str] = []
    for size in sizes:
        counters = [_SPOT] if settings.spot is not None else [_REGION, size.family]
        left = {counter: _left(usages.get(counter.lower())) for counter in counters}
        if unlisted := [counter for counter, room in left.items() if room is None]:
            yield Check(f"vCPU quota for {size.name}", UNKNOWN, f"Azure tells nothing of {' and '.join(unlisted)}")
            continue
        full = {counter: room for counter, room in left.items() if room is not None and room < size.vcpus}
        rooms = ", ".join(f"{room} left of {counter}" for counter, room in (full or left).items())
        (others if full else fitting).append(f"{size.name} needs {size.vcpus} vCPUs: {rooms}")
    hint = f"request more for {place} (portal: Subscriptions, Usage + quotas), or name a size of another family"
    if fitting or others:
        yield check_sizes("vCPU quota", fitting, others, hint)


def _left(usage: _Usage | None) -> int | None:
    return None if usage is None else int(usage["limit"]) - int(usage["currentValue"])
