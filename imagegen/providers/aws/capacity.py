"""Whether a builder of one of the config's sizes can be had: offered where it is to stand, and within the quota."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.providers.aws.client import explained
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, check_sizes, run_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.literals import LocationTypeType
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from imagegen.providers.aws.client import ServiceClients
    from imagegen.providers.aws.settings import Settings

# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html: quotas count vCPUs, by the letters
# that a family's name begins with. The codes: on demand, spot.
_STANDARD: Final = frozenset({"a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"})
_GRAPHICS: Final = frozenset({"g", "gr", "vt"})
_CODES: Final = {"standard": ("L-1216C47A", "L-34B43A08"), "graphics": ("L-DB2E81BA", "L-3819A6DF")}
_LETTERS: Final = re.compile(r"[a-z]+")


def capacity_checks(clients: ServiceClients, settings: Settings) -> tuple[list[Check], list[str]]:
    """Whether sizes are offered and the quotas have room for one of each; and the sizes that are offered."""
    offered: list[str] = []
    checks = run_check("sizes", lambda: _sizes(clients("ec2", settings.region), settings, offered))
    if offered:
        checks += _if_no_other_will_do(run_check("vCPU quota", lambda: _quotas(clients, settings, offered)))
    return checks, offered


def _if_no_other_will_do(quotas: list[Check]) -> list[Check]:
    """Sizes of another family have a quota of their own: one that has room is enough."""
    verdicts = {check.verdict for check in quotas}
    instead = OK if OK in verdicts else UNKNOWN if UNKNOWN in verdicts else WRONG
    return [dataclasses.replace(check, verdict=instead) if check.verdict == WRONG else check for check in quotas]


def _sizes(ec2: EC2Client, settings: Settings, offered: list[str]) -> Iterator[Check]:
    """Fills `offered` too."""
    place, filters = _place(ec2, settings)
    filters.append({"Name": "instance-type", "Values": settings.instance_types})
    kind: LocationTypeType = "region" if place == settings.region else "availability-zone"
    with explained(f"asking which sizes {place} offers", RefusedError):
        found = ec2.describe_instance_type_offerings(LocationType=kind, Filters=filters)["InstanceTypeOfferings"]
    known = {offering["InstanceType"] for offering in found}
    offered += [size for size in settings.instance_types if size in known]
    yield check_sizes(
        "sizes",
        [f"{size} is offered in {place}" for size in offered],
        [f"{size} is not offered in {place}" for size in settings.instance_types if size not in known],
        "name another size in targets.aws.instance_types",
    )


def _place(ec2: EC2Client, settings: Settings) -> tuple[str, list[FilterTypeDef]]:
    """The subnet's zone where there is one, for not every zone has every size; else the region."""
    subnet = settings.network.subnet_id
    if subnet is None:
        return settings.region, []
    with explained(f"looking for the zone of {subnet}", RefusedError):
        subnets = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": [subnet]}])["Subnets"]
    if not subnets:
        return settings.region, []
    zone = subnets[0]["AvailabilityZone"]
    return zone, [{"Name": "location", "Values": [zone]}]


def _quotas(clients: ServiceClients, settings: Settings, sizes: Sequence[str]) -> Iterator[Check]:
    with explained("asking how many vCPUs the sizes have", RefusedError):
        types = clients("ec2", settings.region).describe_instance_types(InstanceTypes=list(sizes))["InstanceTypes"]
    vcpus = {found["InstanceType"]: found["VCpuInfo"]["DefaultVCpus"] for found in types}
    by_code: dict[str, list[str]] = {}
    for size in sizes:
        by_code.setdefault(_quota_code(size, is_spot=settings.spot is not None), []).append(size)
    for size in by_code.pop("", []):
        yield Check(f"vCPU quota for {size}", UNKNOWN, "imagegen does not know which quota counts this family")
    quotas = clients("service-quotas", settings.region)
    for code, counted in by_code.items():
        with explained(f"asking for the quota {code}", RefusedError, service="servicequotas"):
            quota = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code).get("Quota", {})
        if "Value" not in quota:
            yield Check(f"vCPU quota {code}", UNKNOWN, "the answer of service-quotas holds no value")
            continue
        limit = int(quota["Value"])
        fitting = [f"{size} needs {vcpus[size]}" for size in counted if vcpus[size] <= limit]
        others = [f"{size} needs {vcpus[size]}, too many" for size in counted if vcpus[size] > limit]
        command = f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
        check = check_sizes(
            f"vCPU quota {code}",
            fitting,
            others,
            f"`{command} --region {settings.region} --desired-value {max(vcpus[size] for size in counted)}`",
        )
        room = f"{limit} vCPUs of '{quota.get('QuotaName', code)}', not counting what runs now"
        yield dataclasses.replace(check, message=f"{room}; {check.message}")


def _quota_code(size: str, *, is_spot: bool) -> str:
    letters = _LETTERS.match(size)
    family = letters[0] if letters else ""
    kind = "standard" if family in _STANDARD else "graphics" if family in _GRAPHICS else ""
    return _CODES[kind][is_spot] if kind else ""
