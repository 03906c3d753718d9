"""Checks the permissions for a build by dry runs, and the KMS keys that it uses.

Requests that need an existing machine or image (CreateImage, StopInstances, deletions) cannot be checked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.providers.aws.client import ServiceClients, explain_errors
from imagegen.providers.aws.faults import error_code, is_transient
from imagegen.providers.aws.settings import Settings
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, run_check

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_NAME: Final = "imagegen-doctor"
_ALLOWED: Final = "DryRunOperation"
_COPY: Final = "CopyImage"
_FLEET: Final = "CreateFleet"
_DENIED: Final = "UnauthorizedOperation"
# Errors of the credentials themselves, which are not the result of a dry run.
_NOT_ACCEPTED: Final = frozenset({"AuthFailure", "ExpiredToken", "RequestExpired"})
_NAMED_ACTION: Final = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)")


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
        for check in run_check(f"key {key} in {region}", functools.partial(_key, clients, region, key))
    ]


def _key(clients: ServiceClients, region: str, key: str) -> Iterator[Check]:
    from botocore.exceptions import ClientError

    subject = f"key {key} in {region}"
    with explain_errors(f"reading the key {key}", RefusedError, service="kms"):
        try:
            metadata = clients("kms", region).describe_key(KeyId=key)["KeyMetadata"]
        except ClientError as error:
            if error_code(error) != "NotFoundException":
                raise
            yield Check(
                subject, WRONG, "this account has no such key", "correct targets.aws.encryption, or create the key"
            )
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
        checks += _dry_run(_FLEET, ec2.create_fleet, _fleet())
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


def _fleet() -> dict[str, object]:
    """The request of Packer's plugin; its launch template does not exist before a build."""
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
    # Security groups of another VPC need a subnet of that VPC, which Packer chooses later.
    if network.security_group_ids and (network.subnet_id or not network.vpc_id):
        launch["SecurityGroupIds"] = network.security_group_ids
    if settings.iam_instance_profile:
        launch["IamInstanceProfile"] = {"Name": settings.iam_instance_profile}
    return launch


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

    def look() -> Iterator[Check]:
        with explain_errors(f"a dry run of {action}", RefusedError, copied_to=copied_to):
            try:
                call(**request, DryRun=True)
            except ClientError as error:
                if is_transient(error) or error_code(error) in _NOT_ACCEPTED:
                    raise
                yield _read_answer(subject, action, error)
                return
        yield Check(subject, UNKNOWN, "EC2 did not treat the request as a dry run")

    return run_check(subject, look)


def _read_answer(subject: str, action: str, error: ClientError) -> Check:
    code, message = error_code(error), str(error.response["Error"].get("Message", ""))
    if code == _ALLOWED:
        return Check(subject, OK, "allowed (dry run)")
    reason = message.partition("Encoded authorization failure message")[0].strip()
    if code == _DENIED:
        named = _NAMED_ACTION.search(message)
        return Check(subject, WRONG, reason, f"allow {named[1] if named else f'ec2:{action}'} for these credentials")
    message = f"EC2 rejects the request: {code}: {reason}"
    if action in (_COPY, _FLEET):
        # EC2 rejects copies of some of Amazon's own images; and the launch template of a fleet does not exist yet.
        return Check(subject, UNKNOWN, message)
    return Check(subject, WRONG, message, "correct the cause in the message")
