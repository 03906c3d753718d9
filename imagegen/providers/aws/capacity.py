"""Checks whether AWS offers a size for the builder in its zone, within the vCPU quota."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.providers.aws.client import ServiceClients, explain_errors
from imagegen.providers.aws.settings import Settings
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, check_sizes, run_check

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.literals import LocationTypeType
    from mypy_boto3_ec2.type_defs import FilterTypeDef

# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html: quotas count vCPUs, by the letters
# that a family's name begins with. The codes: on demand, spot.
_STANDARD: Final = frozenset({"a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"})
_GRAPHICS: Final = frozenset({"g", "gr", "vt"})
_CODES: Final = {"standard": ("L-1216C47A", "L-34B43A08"), "graphics": ("L-DB2E81BA", "L-3819A6DF")}
_LETTERS: Final = re.compile(r"[a-z]+")


def capacity_checks(clients: ServiceClients, settings: Settings) -> tuple[list[Check], list[str]]:
    """The checks of sizes and quotas, and the sizes that AWS offers."""
    offered: list[str] = []
    checks = run_check("sizes", lambda: _sizes(clients("ec2", settings.region), settings, offered))
    if offered:
        checks += _accept_other_quotas(run_check("vCPU quota", lambda: _quotas(clients, settings, offered)))
    return checks, offered


def _accept_other_quotas(quotas: list[Check]) -> list[Check]:
    """A full quota is no error where another one has room: sizes of other families have other quotas."""
    verdicts = {check.verdict for check in quotas}
    verdict = OK if OK in verdicts else UNKNOWN if UNKNOWN in verdicts else WRONG
    return [dataclasses.replace(check, verdict=verdict) if check.verdict == WRONG else check for check in quotas]


def _sizes(ec2: EC2Client, settings: Settings, offered: list[str]) -> Iterator[Check]:
    """Check whether the sizes are offered; adds these to `offered`."""
    place, filters = _place(ec2, settings)
    filters.append({"Name": "instance-type", "Values": settings.instance_types})
    kind: LocationTypeType = "region" if place == settings.region else "availability-zone"
    with explain_errors(f"asking which sizes {place} offers", RefusedError):
        offerings = ec2.describe_instance_type_offerings(LocationType=kind, Filters=filters)["InstanceTypeOfferings"]
    known = {offering["InstanceType"] for offering in offerings}
    offered += [size for size in settings.instance_types if size in known]
    yield check_sizes(
        "sizes",
        [f"{size} is offered in {place}" for size in offered],
        [f"{size} is not offered in {place}" for size in settings.instance_types if size not in known],
        "write another size to targets.aws.instance_types",
    )


def _place(ec2: EC2Client, settings: Settings) -> tuple[str, list[FilterTypeDef]]:
    """The zone of the subnet, because not every zone has every size; without a subnet the region."""
    subnet = settings.network.subnet_id
    if subnet is None:
        return settings.region, []
    with explain_errors(f"looking for the zone of {subnet}", RefusedError):
        subnets = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": [subnet]}])["Subnets"]
    if not subnets:
        return settings.region, []
    zone = subnets[0]["AvailabilityZone"]
    return zone, [{"Name": "location", "Values": [zone]}]


def _quotas(clients: ServiceClients, settings: Settings, sizes: Sequence[str]) -> Iterator[Check]:
    with explain_errors("asking how many vCPUs the sizes have", RefusedError):
        types = clients("ec2", settings.region).describe_instance_types(InstanceTypes=list(sizes))["InstanceTypes"]
    vcpus = {entry["InstanceType"]: entry["VCpuInfo"]["DefaultVCpus"] for entry in types}
    by_code: dict[str, list[str]] = {}
    for size in sizes:
        by_code.setdefault(_quota_code(size, is_spot=settings.spot is not None), []).append(size)
    for size in by_code.pop("", []):
        yield Check(f"vCPU quota for {size}", UNKNOWN, "imagegen does not know the quota of this family")
    quotas = clients("service-quotas", settings.region)
    for code, counted in by_code.items():
        with explain_errors(f"asking for the quota {code}", RefusedError, service="servicequotas"):
            quota = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code).get("Quota", {})
        if "Value" not in quota:
            yield Check(f"vCPU quota {code}", UNKNOWN, "the answer of service-quotas has no value")
            continue
        limit = int(quota["Value"])
        command = f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
        check = check_sizes(
            f"vCPU quota {code}",
            [f"{size} needs {vcpus[size]}" for size in counted if vcpus[size] <= limit],
            [f"{size} needs {vcpus[size]}, too many" for size in counted if vcpus[size] > limit],
            f"`{command} --region {settings.region} --desired-value {max(vcpus[size] for size in counted)}`",
        )
        yield dataclasses.replace(
            check,
            message=f"{limit} vCPUs of '{quota.get('QuotaName', code)}', some of which may be in use; {check.message}",
        )


def _quota_code(size: str, *, is_spot: bool) -> str:
    letters = _LETTERS.match(size)
    family = letters[0] if letters else ""
    kind = "standard" if family in _STANDARD else "graphics" if family in _GRAPHICS else ""
    return _CODES[kind][is_spot] if kind else ""
