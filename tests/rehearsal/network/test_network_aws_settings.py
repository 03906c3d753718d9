"""The stand-in of AWS with more than a plain build: existing resources, launches, and rejected requests."""

from __future__ import annotations

import base64
import re
import urllib.parse
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.clouds.aws.base_images import base_ami_id
from imagegen.rehearsal.clouds.aws.cloud import Aws, AwsOptions
from imagegen.rehearsal.clouds.aws.existing_resources import ExistingResources
from imagegen.rehearsal.network.messages import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.network.machine import MachineIdentity

_REGION = "eu-west-1"
_BASE = base_ami_id(_REGION, "Windows_Server-2022-English-Core-Base-2026.11.11")
_SUBNET, _GROUP = "subnet-0123456789abcdef0", "sg-0123456789abcdef0"
_EXISTING = ExistingResources("vpc-0123456789abcdef0", _SUBNET, (_GROUP,), "image-builder", private=True)
_USER_DATA = base64.b64encode(b"<powershell>\nset up WinRM\n</powershell>").decode()
_TEMPLATE = {
    "LaunchTemplateName": "t",
    "LaunchTemplateData.ImageId": _BASE,
    "LaunchTemplateData.UserData": _USER_DATA,
    "LaunchTemplateData.IamInstanceProfile.Name": "",
    "LaunchTemplateData.NetworkInterface.1.DeviceIndex": "0",
    "LaunchTemplateData.NetworkInterface.1.SubnetId": _SUBNET,
    "LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1": _GROUP,
}
_FLEET = {
    "Type": "instant",
    "TargetCapacitySpecification.TotalTargetCapacity": "1",
    "TargetCapacitySpecification.DefaultTargetCapacityType": "spot",
    "LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName": "t",
    "LaunchTemplateConfigs.1.Overrides.1.InstanceType": "m5.large",
}


class _Account:
    def __init__(self) -> None:
        self.machines: list[MachineIdentity] = []
        self.aws = Aws(AwsOptions(regions=(_REGION,), existing=_EXISTING, copy_polls=0), self.machines.append)

    def ask(self, action: str, fields: dict[str, str], *, key: str = "AKIA", service: str = "ec2") -> tuple[int, str]:
        version = {"ec2": "2016-11-15", "iam": "2010-05-08", "sts": "2011-06-15"}[service]
        headers = {
            "authorization": f"AWS4-HMAC-SHA256 Credential={key}/20261118/{_REGION}/{service}/aws4_request, x",
            "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        }
        host = "iam.amazonaws.com" if service == "iam" else f"{service}.{_REGION}.amazonaws.com"
        body = urllib.parse.urlencode({"Action": action, "Version": version, **fields}).encode()
        answer = self.aws(Request("POST", host, "/", {}, headers, body, "/"))
        assert answer.fault == ""
        return answer.status, answer.body.decode()

    def copied(self, fields: dict[str, str]) -> str:
        status, text = self.ask("CopyImage", {"SourceRegion": _REGION, **fields})
        found = re.search("<imageId>(.*?)</imageId>", text)
        assert status == 200
        assert found is not None, text
        return found[1]


@pytest.fixture
def account() -> Iterator[_Account]:
    made = _Account()
    with made.aws:
        yield made


def test_what_a_config_names_is_there_and_nothing_else(account: _Account) -> None:
    status, text = account.ask("DescribeSubnets", {"SubnetId.1": _SUBNET})
    assert (status, re.findall(r"<(?:subnetId|vpcId)>(.*?)<", text)) == (200, [_SUBNET, _EXISTING.vpc_id])
    assert account.ask("DescribeSubnets", {"SubnetId.1": "subnet-01234567"})[0] == 400
    assert account.ask("DescribeSecurityGroups", {"GroupId.1": _GROUP})[0] == 200
    assert account.ask("DescribeSecurityGroups", {"GroupId.1": "sg-01234567"})[0] == 400
    assert account.ask("GetInstanceProfile", {"InstanceProfileName": "image-builder"}, service="iam")[0] == 200
    assert account.ask("GetInstanceProfile", {"InstanceProfileName": "another"}, service="iam")[0] == 404


def test_a_role_of_another_account_sees_the_same_account(account: _Account) -> None:
    role = {"RoleArn": "arn:aws:iam::111122223333:role/images", "RoleSessionName": "nightly"}
    status, text = account.ask("AssumeRole", role, service="sts")
    found = re.search(r"<AccessKeyId>(.*?)</AccessKeyId>", text)
    assert status == 200
    assert found is not None
    assert _BASE in account.ask("DescribeImages", {"ImageId.1": _BASE}, key=found[1])[1]


def test_a_fleet_of_one_spot_instance_is_a_machine(account: _Account) -> None:
    assert account.ask("CreateLaunchTemplate", _TEMPLATE)[0] == 200
    status, text = account.ask("CreateFleet", _FLEET)
    [machine] = account.machines
    assert (status, f"<instanceIds><item>{machine.name}</item></instanceIds>" in text) == (200, True)
    assert machine.address.startswith("10.20.0.")
    assert account.aws.why_closed(machine.address) == ""
    described = account.ask("DescribeInstances", {"InstanceId.1": machine.name})[1]
    assert _SUBNET in described
    assert "<instanceType>m5.large</instanceType>" in described
    [request] = re.findall("<spotInstanceRequestId>(sir-.*?)<", described)
    assert account.ask("CreateTags", {"ResourceId.1": request, "Tag.1.Key": "a", "Tag.1.Value": "b"})[0] == 200
    asked = {"Filter.1.Name": "tag:a", "Filter.1.Value.1": "b"}
    assert "<state>active</state>" in account.ask("DescribeSpotInstanceRequests", asked)[1]
    in_use = {"GroupId": _GROUP}
    assert "DependencyViolation" in account.ask("DeleteSecurityGroup", in_use)[1]
    account.ask("TerminateInstances", {"InstanceId.1": machine.name})
    assert account.ask("DeleteSecurityGroup", in_use)[0] == 200
    assert "<state>closed</state>" in account.ask("DescribeSpotInstanceRequests", asked)[1]


def test_a_fleet_that_ec2_cannot_start_says_so_in_its_answer(account: _Account) -> None:
    account.ask("CreateLaunchTemplate", _TEMPLATE)
    status, text = account.ask("CreateFleet", {**_FLEET, "LaunchTemplateConfigs.1.Overrides.1.InstanceType": "m5.tiny"})
    assert (status, "<errorCode>InvalidParameterValue</errorCode>" in text) == (200, True)
    assert account.machines == []


@pytest.mark.parametrize(
    ("action", "fields", "code"),
    [
        ("CreateFleet", _FLEET, "InvalidLaunchTemplateName.NotFoundException"),
        ("CreateFleet", {**_FLEET, "Type": "maintain"}, "InvalidFleetConfiguration"),
        ("CopyImage", {"Name": "copy", "KmsKeyId": "alias/images"}, "InvalidParameterDependency"),
        ("ModifyImageAttribute", {"ImageId": _BASE, "ImdsSupport.Value": "v1.0"}, "InvalidParameterValue"),
    ],
    ids=["no template", "a lasting fleet", "a key and no encryption", "tokens not required"],
)
def test_what_ec2_refuses_is_refused(account: _Account, action: str, fields: dict[str, str], code: str) -> None:
    status, text = account.ask(action, fields)
    assert (status, f"<Code>{code}</Code>" in text) == (400, True)


def test_images_remember_encryption_and_tokens(account: _Account) -> None:
    def shown(ami: str) -> list[str]:
        text = account.ask("DescribeImages", {"ImageId.1": ami})[1]
        return re.findall(r"<(?:encrypted|imdsSupport)>(.*?)<", text)

    bare = account.copied({"SourceImageId": _BASE, "Name": "bare"})
    closed = account.copied({"SourceImageId": bare, "Name": "closed", "Encrypted": "true"})
    again = account.copied({"SourceImageId": closed, "Name": "again"})
    assert account.ask("ModifyImageAttribute", {"ImageId": closed, "ImdsSupport.Value": "v2.0"})[0] == 200
    assert [sorted(shown(ami)) for ami in (bare, closed, again)] == [["false"], ["true", "v2.0"], ["true"]]
