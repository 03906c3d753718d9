"""Whether the credentials may do what a build does: EC2 answers a dry run without doing it. And the keys that it uses.

What EC2 judges only by a machine or an image that exists (CreateImage, StopInstances, deleting) is not asked.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.providers.aws.client import explained
from imagegen.providers.aws.faults import error_code, may_pass
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, run_check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from botocore.exceptions import ClientError

    from imagegen.providers.aws.client import ServiceClients
    from imagegen.providers.aws.settings import Settings

_NAME: Final = "imagegen-doctor"
_ALLOWED: Final = "DryRunOperation"
_COPY: Final = "CopyImage"
_FLEET: Final = "CreateFleet"
_DENIED: Final = "UnauthorizedOperation"
# The credentials themselves: what a dry run says of them is no answer to it.
_NOT_ACCEPTED: Final = frozenset({"AuthFailure", "ExpiredToken", "RequestExpired"})
_NAMED_ACTION: Final = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)")


def key_checks(clients: ServiceClients, settings: Settings) -> list[Check]:
    """The keys that the config names; the account's default ones need no asking."""
    asked = settings.encryption
    if asked is None:
        return []
    keys = [
        (settings.region, asked.kms_key),
        *((region, asked.region_kms_keys.get(region)) for region in _to(settings)),
    ]
    return [
        check
        for region, key in keys
        if key is not None
        for check in run_check(f"key {key} in {region}", functools.partial(_key, clients, region, key))
    ]


def _key(clients: ServiceClients, region: str, key: str) -> Iterator[Check]:
    from botocore.exceptions import ClientError

    subject = f"key {key} in {region}"
    with explained(f"asking about the key {key}", RefusedError, service="kms"):
        try:
            found = clients("kms", region).describe_key(KeyId=key)["KeyMetadata"]
        except ClientError as error:
            if error_code(error) != "NotFoundException":
                raise
            yield Check(subject, WRONG, "there is no such key", "correct targets.aws.encryption, or create the key")
            return
    if found["KeyState"] != "Enabled":
        yield Check(
            subject, WRONG, f"it is {found['KeyState']}", "enable it, or name another in targets.aws.encryption"
        )
    elif found.get("KeySpec", "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT":
        yield Check(
            subject,
            WRONG,
            f"it is of kind {found['KeySpec']}, which EBS cannot use",
            "name a symmetric key in targets.aws.encryption",
        )
    else:
        yield Check(subject, OK, "enabled; whether EBS may use it is decided by its policy, which is not read")


def permission_checks(clients: ServiceClients, settings: Settings, ami: str, size: str) -> list[Check]:
    """A dry run of each request that makes something, with this base image and size, where there is one.

    The base image stands for the image to copy, too.
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
        checks += _dry_run(_FLEET, ec2.create_fleet, _fleet())
    if ami and size:
        checks += _dry_run("RunInstances", ec2.run_instances, _launch(settings, ami, size))
    else:
        checks.append(
            Check(
                "permission for ec2:RunInstances",
                UNKNOWN,
                f"could not be asked without {'a size that is offered' if ami else 'the base image'}",
            )
        )
    for region in _to(settings) if ami else []:
        copy = {
            "SourceImageId": ami,
            "SourceRegion": settings.region,
            "Name": _NAME,
            "TagSpecifications": _tags("image"),
        }
        checks += _dry_run(_COPY, clients("ec2", region).copy_image, copy, copied_to=region)
    return checks


def _fleet() -> dict[str, object]:
    """As the plugin asks for one; its launch template is not there before a build."""
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": {"LaunchTemplateName": _NAME, "Version": "1"}}],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
        "TagSpecifications": _tags("fleet"),
    }


def _launch(settings: Settings, ami: str, size: str) -> dict[str, object]:
    network = settings.network
    launch: dict[str, object] = {
        "ImageId": ami,
        "InstanceType": size,
        "MinCount": 1,
        "MaxCount": 1,
        "TagSpecifications": _tags("instance", "volume"),
    }
    if settings.spot is not None:
        launch["InstanceMarketOptions"] = {"MarketType": "spot"}
    if network.subnet_id:
        launch["SubnetId"] = network.subnet_id
    # Groups of another VPC than the default one fit only a subnet of that VPC, which Packer chooses.
    if network.security_group_ids and (network.subnet_id or not network.vpc_id):
        launch["SecurityGroupIds"] = network.security_group_ids
    if settings.iam_instance_profile:
        launch["IamInstanceProfile"] = {"Name": settings.iam_instance_profile}
    return launch


def _tags(*kinds: str) -> list[dict[str, object]]:
    """Tags need a permission of their own, which EC2 judges with the request."""
    return [{"ResourceType": kind, "Tags": [{"Key": "Name", "Value": _NAME}]} for kind in kinds]


def _to(settings: Settings) -> list[str]:
    return [region for region in dict.fromkeys(settings.publish.regions) if region != settings.region]


def _dry_run(
    action: str, call: Callable[..., object], request: Mapping[str, object], *, copied_to: str = ""
) -> list[Check]:
    from botocore.exceptions import ClientError

    subject = f"permission for ec2:{action}{f' in {copied_to}' if copied_to else ''}"

    def look() -> Iterator[Check]:
        with explained(f"a dry run of {action}", RefusedError, copied_to=copied_to):
            try:
                call(**request, DryRun=True)
            except ClientError as error:
                if may_pass(error) or error_code(error) in _NOT_ACCEPTED:
                    raise
                yield _judged(subject, action, error)
                return
        yield Check(subject, UNKNOWN, "EC2's answer is not one of a dry run")

    return run_check(subject, look)


def _judged(subject: str, action: str, error: ClientError) -> Check:
    code, message = error_code(error), str(error.response["Error"].get("Message", ""))
    if code == _ALLOWED:
        return Check(subject, OK, "allowed (dry run)")
    reason = message.partition("Encoded authorization failure message")[0].strip()
    if code == _DENIED:
        named = _NAMED_ACTION.search(message)
        permission = named[1] if named else f"ec2:{action}"
        return Check(subject, WRONG, reason, f"allow {permission} for these credentials")
    message = f"EC2 rejects the request: {code}: {reason}"
    if action in (_COPY, _FLEET):
        # A copy names Amazon's own image, for there is no other before a build, and EC2 refuses copies of some of
        # those; a fleet names a launch template that no build has made yet.
        return Check(subject, UNKNOWN, message)
    return Check(subject, WRONG, message, "correct what the message names")
