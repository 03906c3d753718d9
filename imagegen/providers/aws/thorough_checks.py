"""The slower checks on AWS before a build: base image, sizes and quotas, KMS keys, and permissions by dry runs.

Requests that need an existing machine or image (CreateImage, StopInstances, deletions) cannot be checked.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import RefusedError
from imagegen.providers.aws.client import ServiceClients
from imagegen.providers.aws.faults import error_code, explain_errors, is_transient
from imagegen.providers.aws.images import look_up_base
from imagegen.providers.aws.settings import Settings
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, check_sizes, run_check

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef

# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html: quotas count vCPUs, by the letters
# that a family's name begins with. The codes: on demand, spot.
_QUOTAS: Final = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), ("L-1216C47A", "L-34B43A08")),
    **dict.fromkeys(("g", "gr", "vt"), ("L-DB2E81BA", "L-3819A6DF")),
}
_NAME: Final = "imagegen-doctor"
_COPY: Final = "CopyImage"
_FLEET: Final = "CreateFleet"
# Errors of the credentials themselves, which are not the result of a dry run.
_NOT_ACCEPTED: Final = frozenset({"AuthFailure", "ExpiredToken", "RequestExpired"})


def run_thorough_checks(clients: ServiceClients, settings: Settings, request: Mapping[str, str]) -> list[Check]:
    """The slower checks with these clients."""
    ami = ""

    def look() -> Iterator[Check]:
        nonlocal ami
        base = look_up_base(clients("ec2", settings.region), request, settings)
        ami = base.place["ami_id"]
        yield Check("base image", OK, f"{base.identity['name']}, {ami}")

    image = run_check("base image", look)
    sizes, offered = capacity_checks(clients, settings)
    return [
        *image,
        *sizes,
        *key_checks(clients, settings),
        *permission_checks(clients, settings, ami, next(iter(offered), "")),
    ]


def capacity_checks(clients: ServiceClients, settings: Settings) -> tuple[list[Check], list[str]]:
    """The checks of sizes and quotas, and the sizes that AWS offers."""
    offered: list[str] = []
    checks = run_check("sizes", lambda: _sizes(clients("ec2", settings.region), settings, offered))
    quotas = run_check("vCPU quota", lambda: _quotas(clients, settings, offered)) if offered else []
    # A full quota is no error where another one has room: sizes of other families have other quotas.
    best = next((verdict for verdict in (OK, UNKNOWN) if verdict in [check.verdict for check in quotas]), WRONG)
    checks += [dataclasses.replace(check, verdict=best) if check.verdict == WRONG else check for check in quotas]
    return checks, offered


def _sizes(ec2: EC2Client, settings: Settings, offered: list[str]) -> Iterator[Check]:
    """Check whether the sizes are offered; adds these to `offered`."""
    wanted: FilterTypeDef = {"Name": "instance-type", "Values": settings.instance_types}
    place, filters = _place(ec2, settings)
    with explain_errors(f"asking which sizes {place} offers", RefusedError):
        offerings = ec2.describe_instance_type_offerings(
            LocationType="availability-zone" if filters else "region", Filters=[*filters, wanted]
        )["InstanceTypeOfferings"]
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
    subnet, zones = settings.network.subnet_id, list[str]()
    if subnet:
        with explain_errors(f"looking for the zone of {subnet}", RefusedError):
            subnets = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": [subnet]}])["Subnets"]
        zones = [found["AvailabilityZone"] for found in subnets]
    return (zones[0], [{"Name": "location", "Values": zones}]) if zones else (settings.region, [])


def _quotas(clients: ServiceClients, settings: Settings, sizes: Sequence[str]) -> Iterator[Check]:
    with explain_errors("asking how many vCPUs the sizes have", RefusedError):
        types = clients("ec2", settings.region).describe_instance_types(InstanceTypes=list(sizes))["InstanceTypes"]
    vcpus = {entry["InstanceType"]: entry["VCpuInfo"]["DefaultVCpus"] for entry in types}
    by_code: dict[str, list[str]] = {}
    for size in sizes:
        codes = _QUOTAS.get("".join(itertools.takewhile(str.isalpha, size)))
        by_code.setdefault(codes[settings.spot is not None] if codes else "", []).append(size)
    for size in by_code.pop("", []):
        yield Check(f"vCPU quota for {size}", UNKNOWN, "imagegen does not know the quota of this family")
    for code, counted in by_code.items():
        with explain_errors(f"asking for the quota {code}", RefusedError, service="servicequotas"):
            quota = (
                clients("service-quotas", settings.region)
                .get_service_quota(ServiceCode="ec2", QuotaCode=code)
                .get("Quota", {})
            )
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


def key_checks(clients: ServiceClients, settings: Settings) -> list[Check]:
    """Check the keys in the config; the account's default keys need no check."""
    encryption = settings.encryption
    if encryption is None:
        return []
    keys = [
        (settings.region, encryption.kms_key),
        *((region, encryption.region_kms_keys.get(region)) for region in _copy_regions(settings)),
    ]
    return [
        check
        for region, key in keys
        if key is not None
        for check in run_check(
            f"key {key} in {region}",
            functools.partial(_key, clients, region, key),
            explain_errors(f"reading the key {key}", RefusedError, service="kms"),
        )
    ]


def _key(clients: ServiceClients, region: str, key: str) -> Iterator[Check]:
    subject = f"key {key} in {region}"
    try:
        metadata = clients("kms", region).describe_key(KeyId=key)["KeyMetadata"]
    except Exception as error:
        if error_code(error) != "NotFoundException":
            raise
        yield Check(subject, WRONG, "this account has no such key", "correct targets.aws.encryption, or create the key")
        return
    if metadata["KeyState"] != "Enabled":
        yield Check(
            subject, WRONG, f"it is {metadata['KeyState']}", "enable it, or write another key to targets.aws.encryption"
        )
    elif metadata.get("KeySpec", "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT":
        yield Check(
            subject,
            WRONG,
            f"it has the type {metadata['KeySpec']}, which EBS does not support",
            "write a symmetric key to targets.aws.encryption",
        )
    else:
        yield Check(subject, OK, "enabled (imagegen does not read the policy, which must allow EBS to use it)")


def permission_checks(clients: ServiceClients, settings: Settings, ami: str, size: str) -> list[Check]:
    """Make a dry run of each request that creates something, with this base image and size, if any.

    Before a build, the base image also serves as the image to copy.
    """
    ec2 = clients("ec2", settings.region)
    checks = _dry_run("CreateKeyPair", ec2.create_key_pair, {"KeyName": _NAME, "TagSpecifications": _tags("key-pair")})
    if not settings.network.security_group_ids:
        vpc = {"VpcId": settings.network.vpc_id} if settings.network.vpc_id else {}
        group = {"GroupName": _NAME, "Description": _NAME, "TagSpecifications": _tags("security-group"), **vpc}
        checks += _dry_run("CreateSecurityGroup", ec2.create_security_group, group)
    if settings.spot is not None:
        template = {
            "LaunchTemplateName": _NAME,
            "LaunchTemplateData": {"InstanceType": settings.instance_types[0]},
            "TagSpecifications": _tags("launch-template"),
        }
        checks += _dry_run("CreateLaunchTemplate", ec2.create_launch_template, template)
        # As Packer's plugin requests it; its launch template does not exist before a build.
        fleet = {
            "Type": "instant",
            "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": {"LaunchTemplateName": _NAME, "Version": "1"}}],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
            "TagSpecifications": _tags("fleet"),
        }
        checks += _dry_run(_FLEET, ec2.create_fleet, fleet)
    if ami and size:
        checks += _dry_run("RunInstances", ec2.run_instances, _launch(settings, ami, size))
    else:
        checks.append(
            Check(
                "permission for ec2:RunInstances",
                UNKNOWN,
                f"cannot be checked without {'an offered size' if ami else 'the base image'}",
            )
        )
    for region in _copy_regions(settings) if ami else []:
        copy = {
            "SourceImageId": ami,
            "SourceRegion": settings.region,
            "Name": _NAME,
            "TagSpecifications": _tags("image"),
        }
        checks += _dry_run(_COPY, clients("ec2", region).copy_image, copy, copied_to=region)
    return checks


def _launch(settings: Settings, ami: str, size: str) -> dict[str, object]:
    network = settings.network
    # Security groups of another VPC need a subnet of that VPC, which Packer chooses later.
    has_groups = network.security_group_ids and (network.subnet_id or not network.vpc_id)
    profile = settings.iam_instance_profile
    launch = {
        "ImageId": ami,
        "InstanceType": size,
        "MinCount": 1,
        "MaxCount": 1,
        "TagSpecifications": _tags("instance", "volume"),
        "InstanceMarketOptions": None if settings.spot is None else {"MarketType": "spot"},
        "SubnetId": network.subnet_id,
        "SecurityGroupIds": network.security_group_ids if has_groups else None,
        "IamInstanceProfile": {"Name": profile} if profile else None,
    }
    return {name: value for name, value in launch.items() if value is not None}


def _tags(*kinds: str) -> list[dict[str, object]]:
    """Tags, because they need their own permission, which EC2 checks with the request."""
    return [{"ResourceType": kind, "Tags": [{"Key": "Name", "Value": _NAME}]} for kind in kinds]


def _copy_regions(settings: Settings) -> list[str]:
    return [region for region in dict.fromkeys(settings.publish.regions) if region != settings.region]


def _dry_run(
    action: str, call: Callable[..., object], request: Mapping[str, object], *, copied_to: str = ""
) -> list[Check]:
    from botocore.exceptions import ClientError

    subject = f"permission for ec2:{action}{f' in {copied_to}' if copied_to else ''}"

    def look() -> list[Check]:
        try:
            call(**request, DryRun=True)
        except ClientError as error:
            if is_transient(error) or error_code(error) in _NOT_ACCEPTED:
                raise
            return [_read_answer(subject, action, error)]
        return [Check(subject, UNKNOWN, "EC2 did not treat the request as a dry run")]

    return run_check(subject, look, explain_errors(f"a dry run of {action}", RefusedError, copied_to=copied_to))


def _read_answer(subject: str, action: str, error: ClientError) -> Check:
    code, message = error_code(error), str(error.response["Error"].get("Message", ""))
    if code == "DryRunOperation":
        return Check(subject, OK, "allowed (dry run)")
    reason = message.partition("Encoded authorization failure message")[0].strip()
    if code == "UnauthorizedOperation":
        named = re.search(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)", message)
        return Check(subject, WRONG, reason, f"allow {named[1] if named else f'ec2:{action}'} for these credentials")
    message = f"EC2 rejects the request: {code}: {reason}"
    if action in (_COPY, _FLEET):
        # EC2 rejects copies of some of Amazon's own images; and the launch template of a fleet does not exist yet.
        return Check(subject, UNKNOWN, message)
    return Check(subject, WRONG, message, "correct the cause in the message")
