"""The checks on AWS before a build, so that a hopeless build fails early. They create nothing."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from imagegen.base.errors import RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.aws.client import ServiceClients, service_clients
from imagegen.providers.aws.faults import error_code, explain_errors
from imagegen.providers.aws.settings import Settings
from imagegen.providers.aws.thorough_checks import run_thorough_checks
from imagegen.providers.checks import OK, SIGN_IN, WRONG, Check, is_stopped, run_check
from imagegen.providers.time_limits import THOROUGH_LIMIT_S, Deadline

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

    from imagegen.settle.spec import Spec

# Every account has these regions, which cannot be disabled; in the largest partition it is us-east-1.
_FIRST_REGIONS = {"cn": "cn-north-1", "us-gov": "us-gov-west-1"}


def quick_checks(settings: Settings, run: RunFacts) -> list[Check]:
    """Check sign-in, regions, and the resources of the account that the config names, in a few requests."""
    with service_clients(run.environ, settings.auth, deadline=Deadline()) as clients:
        return run_quick_checks(clients, settings)


def thorough_checks(spec: Spec[Settings], request: Mapping[str, str], run: RunFacts) -> list[Check]:
    """Check the base image, sizes and quotas, keys, and permissions by dry runs."""
    with service_clients(run.environ, spec.settings.auth, deadline=Deadline(THOROUGH_LIMIT_S)) as clients:
        return run_thorough_checks(clients, spec.settings, request)


def run_quick_checks(clients: ServiceClients, settings: Settings) -> list[Check]:
    """The quick checks with these clients."""
    region, signed_in = _sign_in(clients, settings.region)
    checks = [signed_in]
    if is_stopped(checks):
        return checks
    checks += run_check(
        "regions",
        lambda: _regions(clients("ec2", region), settings),
        explain_errors("asking which regions are enabled", RefusedError),
    )
    if is_stopped(checks):
        return checks
    network = settings.network
    # The subnet determines the VPC. Without both, the build uses the default VPC.
    if network.subnet_id:
        subnet = f"subnet {network.subnet_id}"
        checks += run_check(
            subnet, lambda: _subnet(clients, settings), explain_errors(f"looking for {subnet}", RefusedError)
        )
    else:
        checks += run_check(
            f"VPC {network.vpc_id or 'of the region'}",
            lambda: _vpc(clients, settings),
            explain_errors("looking for the VPC", RefusedError),
        )
    if network.security_group_ids:
        checks += run_check(
            "security groups",
            lambda: _security_groups(clients, settings),
            explain_errors("looking for the security groups", RefusedError),
        )
    if settings.iam_instance_profile:
        profile = f"instance profile {settings.iam_instance_profile}"
        checks += run_check(
            profile,
            lambda: _instance_profile(clients, settings, profile),
            explain_errors(f"looking for {profile}", RefusedError, service="iam"),
        )
    return checks


def _sign_in(clients: ServiceClients, region: str) -> tuple[str, Check]:
    """The region where sign-in works, and the check of the sign-in.

    A region that is not enabled rejects all credentials, and one that does not exist has no host. In both cases another
    region, which every account has, can still list the enabled regions.
    """
    check = _check_sign_in(clients, region)
    other = _FIRST_REGIONS.get(region.rpartition("-")[0].rpartition("-")[0], "us-east-1")
    if check.verdict != OK and other != region:
        elsewhere = _check_sign_in(clients, other)
        if elsewhere.verdict == OK:
            return other, elsewhere
    return region, check


def _check_sign_in(clients: ServiceClients, region: str) -> Check:
    (check,) = run_check(
        SIGN_IN,
        lambda: [Check(SIGN_IN, OK, clients("sts", region).get_caller_identity()["Arn"])],
        explain_errors(f"signing in to {region}", RefusedError, service="sts"),
    )
    return dataclasses.replace(check, stops=True)


def _regions(ec2: EC2Client, settings: Settings) -> Iterator[Check]:
    statuses = {
        region["RegionName"]: region["OptInStatus"] for region in ec2.describe_regions(AllRegions=True)["Regions"]
    }
    yield dataclasses.replace(
        _region("build region", settings.region, statuses, "choose another targets.aws.region"), stops=True
    )
    for region in settings.publish.regions:
        yield dataclasses.replace(
            _region("publish region", region, statuses, f"leave {region} out of targets.aws.publish.regions"),
            of_publishing=True,
        )


def _region(what: str, region: str, statuses: Mapping[str, str], instead: str) -> Check:
    subject, status = f"{what} {region}", statuses.get(region)
    if status is None:
        nearest = difflib.get_close_matches(region, statuses, n=3)
        return Check(
            subject,
            WRONG,
            "AWS has no region of this name",
            f"write {' or '.join(nearest)}, or {instead}" if nearest else instead,
        )
    if status == "not-opted-in":
        return Check(
            subject,
            WRONG,
            "this account has not enabled the region",
            f"enable it (`aws account enable-region --region-name {region}`, which takes minutes), or {instead}",
        )
    return Check(subject, OK, "enabled" if status == "opted-in" else "always enabled")


def _subnet(clients: ServiceClients, settings: Settings) -> Iterator[Check]:
    network, region = settings.network, settings.region
    subject = f"subnet {network.subnet_id}"
    subnets = clients("ec2", region).describe_subnets(Filters=_filter("subnet-id", network.subnet_id))["Subnets"]
    if not subnets:
        yield Check(
            subject,
            WRONG,
            f"this account has no such subnet in {region}",
            "correct targets.aws.network.subnet_id, or targets.aws.region",
        )
    elif network.vpc_id not in (None, subnets[0]["VpcId"]):
        yield Check(
            subject,
            WRONG,
            f"it is in {subnets[0]['VpcId']}, not in {network.vpc_id}",
            "correct targets.aws.network.vpc_id, or leave it out",
        )
    else:
        yield Check(subject, OK, f"in {subnets[0]['VpcId']}, {subnets[0]['AvailabilityZone']}")


def _vpc(clients: ServiceClients, settings: Settings) -> Iterator[Check]:
    vpc, region = settings.network.vpc_id, settings.region
    wanted = _filter("vpc-id", vpc) if vpc else _filter("is-default", "true")
    vpcs = clients("ec2", region).describe_vpcs(Filters=wanted)["Vpcs"]
    if vpcs:
        yield Check(f"VPC {vpcs[0]['VpcId']}", OK, "exists" if vpc else f"the default VPC of {region}")
    elif vpc:
        yield Check(
            f"VPC {vpc}",
            WRONG,
            f"this account has no such VPC in {region}",
            "correct targets.aws.network.vpc_id, or targets.aws.region",
        )
    else:
        yield Check(
            "default VPC",
            WRONG,
            f"this account has no default VPC in {region}",
            "set targets.aws.network.subnet_id, or run `aws ec2 create-default-vpc`",
        )


def _security_groups(clients: ServiceClients, settings: Settings) -> Iterator[Check]:
    wanted = settings.network.security_group_ids
    groups = clients("ec2", settings.region).describe_security_groups(Filters=[{"Name": "group-id", "Values": wanted}])
    vpcs = {group["GroupId"]: group["VpcId"] for group in groups["SecurityGroups"]}
    for group in wanted:
        if group in vpcs:
            yield Check(f"security group {group}", OK, f"in {vpcs[group]}")
        else:
            yield Check(
                f"security group {group}",
                WRONG,
                f"this account has no such security group in {settings.region}",
                "correct targets.aws.network.security_group_ids",
            )


def _instance_profile(clients: ServiceClients, settings: Settings, subject: str) -> Iterator[Check]:
    try:
        clients("iam", settings.region).get_instance_profile(InstanceProfileName=settings.iam_instance_profile)
    except Exception as error:
        if error_code(error) != "NoSuchEntity":
            raise
        yield Check(
            subject,
            WRONG,
            "this account has no such instance profile",
            "correct targets.aws.iam_instance_profile, or create it",
        )
    else:
        yield Check(subject, OK, "exists")


def _filter(name: str, value: str | None) -> list[dict[str, object]]:
    # A filter, because an unknown id raises an error instead of an empty list.
    return [{"Name": name, "Values": [value]}]
