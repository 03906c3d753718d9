"""The stand-in of AWS: what it rejects, when the WinRM port of a machine is open, and what it adds to images."""

from __future__ import annotations

import base64
import functools
import re
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.rehearsal.network.machine import MachineIdentity

pytestmark = pytest.mark.usefixtures("cloud_descriptions")

_BASE = "Windows_Server-2022-English-Core-Base-2026.11.11"
_BOOTSTRAP = b"<powershell>\nset up WinRM\n</powershell>"
_REGION = "eu-west-1"


class _Account:
    """An open AWS and the machines it started."""

    def __init__(self) -> None:
        # Here and not above: this brings moto, which takes a second of every process that reads the tests.
        from imagegen.rehearsal.clouds.aws.cloud import Aws, AwsOptions

        self.machines: list[MachineIdentity] = []
        self.aws = Aws(AwsOptions(regions=(_REGION, "us-east-1"), copy_polls=2), self.machines.append)

    def ask(self, action: str, *, region: str = _REGION, **fields: str) -> Response:
        form = {
            "Action": action,
            "Version": "2016-11-15",
            **{key.replace("__", "."): value for key, value in fields.items()},
        }
        scope = f"AKIA/20261118/{region}/ec2/aws4_request"
        headers = {
            "authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
            "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        }
        body = urllib.parse.urlencode(form).encode()
        return self.aws(Request("POST", f"ec2.{region}.amazonaws.com", "/", {}, headers, body, "/"))

    def text(self, action: str, *, region: str = _REGION, **fields: str) -> str:
        answer = self.ask(action, region=region, **fields)
        assert answer.status == 200, answer.body
        return answer.body.decode()

    def launch(self, *, user_data: bytes = _BOOTSTRAP, changed: Mapping[str, str] | None = None) -> Response:
        group = _one("groupId", self.text("CreateSecurityGroup", GroupName="g", GroupDescription="g"))
        self.group = group
        self.key = _one("keyMaterial", self.text("CreateKeyPair", KeyName="k")).replace("&#13;", "")
        wanted = {
            "ImageId": _stock_ami(_REGION),
            "InstanceType": "m5.large",
            "KeyName": "k",
            "MinCount": "1",
            "MaxCount": "1",
            "UserData": base64.b64encode(user_data).decode(),
            "SecurityGroupId.1": group,
        }
        return self.ask("RunInstances", **{**wanted, **(changed or {})})

    def admit(self, *, cidr: str = "0.0.0.0/0", first: str = "5986", last: str = "5986", protocol: str = "tcp") -> None:
        permission = {"IpProtocol": protocol, "FromPort": first, "ToPort": last, "IpRanges.1.CidrIp": cidr}
        fields = {f"IpPermissions.1.{key}": value for key, value in permission.items()}
        self.text("AuthorizeSecurityGroupIngress", GroupId=self.group, **fields)


def _stock_ami(region: str) -> str:
    from imagegen.rehearsal.clouds.aws.base_images import base_ami_id

    return base_ami_id(region, _BASE)


def _one(tag: str, text: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert found is not None, text
    return found[1]


@functools.cache
def _key_pair() -> Any:  # noqa: ANN401 - as moto makes it
    from moto.ec2.utils import random_rsa_key_pair

    return random_rsa_key_pair()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Account]:
    made = _Account()
    # One key for all: to find its primes takes longer than the rest of a test.
    monkeypatch.setattr("moto.ec2.models.key_pairs.random_rsa_key_pair", lambda: dict(_key_pair()))
    with made.aws:
        yield made


def test_only_one_network_owns_moto(account: _Account) -> None:
    with pytest.raises(RuntimeError, match="moto has only one state"):
        account.aws.__enter__()


def test_amazons_images_are_in_the_regions_of_the_options(account: _Account) -> None:
    found = account.text("DescribeImages", Owner__1="amazon", Filter__1__Name="name", Filter__1__Value__1="*2022*Core*")
    assert re.findall(r"<name>(.*?)</name>", found) == [_BASE.replace("11.11", "10.14"), _BASE]
    assert "<imageOwnerAlias>amazon</imageOwnerAlias>" in found
    assert "<creationDate>2026-11-11T10:00:00.000Z</creationDate>" in found
    assert _stock_ami(_REGION) in found
    assert _stock_ami("us-east-1") in account.text("DescribeImages", region="us-east-1")
    assert "<name>" not in account.text("DescribeImages", region="us-west-2")


def test_the_password_is_for_the_holder_of_the_key(account: _Account) -> None:
    answer = account.launch()
    assert answer.status == 200, answer.body
    [machine] = account.machines
    assert (machine.image, machine.username, machine.user_data) == (_BASE, "Administrator", _BOOTSTRAP)
    data = _one("passwordData", account.text("GetPasswordData", InstanceId=machine.name))
    key = load_pem_private_key(account.key.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    assert key.decrypt(base64.b64decode(data), padding.PKCS1v15()).decode() == machine.password
    assert machine.password not in repr(machine)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"KeyName": "nobody's"}, "InvalidKeyPair.NotFound"),
        ({"InstanceType": "m5.tiny"}, "InvalidParameterValue"),
        ({"UserData": base64.b64encode(b"x" * 16_385).decode()}, "InvalidParameterValue"),
    ],
)
def test_a_launch_that_ec2_refuses_is_refused(account: _Account, fields: dict[str, str], code: str) -> None:
    answer = account.launch(changed=fields)
    assert (answer.status, _one("Code", answer.body.decode()), answer.fault) == (400, code, "")
    assert account.machines == []


def test_the_door_opens_when_a_rule_admits_the_port(account: _Account) -> None:
    account.launch()
    [machine] = account.machines
    assert account.aws.why_closed("192.0.2.1") is None
    assert account.aws.why_closed(machine.address) == (
        f"security group {account.group} has no rule for TCP 5986 from 203.0.113.7"
    )
    account.admit(first="5000", last="6000")
    assert account.aws.why_closed(machine.address) == ""
    account.text("StopInstances", InstanceId__1=machine.name)
    assert account.aws.why_closed(machine.address) == f"instance {machine.name} is stopped"


@pytest.mark.parametrize(
    "rule",
    [
        {"protocol": "udp"},
        {"first": "5985", "last": "5985"},
        {"cidr": "198.51.100.0/24"},
    ],
)
def test_another_rule_does_not_open_it(account: _Account, rule: dict[str, str]) -> None:
    account.launch()
    account.admit(**rule)
    assert "has no rule for TCP 5986" in (account.aws.why_closed(account.machines[0].address) or "")


@pytest.mark.parametrize(("user_data", "reason"), [(b"", "has no user data"), (b"#!/bin/sh", "no <powershell>")])
def test_a_machine_without_a_bootstrap_stays_shut(account: _Account, user_data: bytes, reason: str) -> None:
    account.launch(user_data=user_data)
    account.admit()
    assert reason in (account.aws.why_closed(account.machines[0].address) or "")


def test_an_image_of_a_machine_has_its_own_and_its_snapshots_tags(account: _Account) -> None:
    account.launch()
    tags = {
        "TagSpecification.1.ResourceType": "image",
        "TagSpecification.1.Tag.1.Key": "a",
        "TagSpecification.1.Tag.1.Value": "image",
        "TagSpecification.2.ResourceType": "snapshot",
        "TagSpecification.2.Tag.1.Key": "a",
        "TagSpecification.2.Tag.1.Value": "snapshot",
    }
    made = account.text("CreateImage", InstanceId=account.machines[0].name, Name="first", **tags)
    image = account.text("DescribeImages", ImageId__1=_one("imageId", made))
    assert "<value>image</value>" in image
    assert "<rootDeviceType>ebs</rootDeviceType>" in image
    snapshot = account.text("DescribeSnapshots", SnapshotId__1=_one("snapshotId", image))
    assert "<value>snapshot</value>" in snapshot


@pytest.mark.parametrize(
    ("name", "code"),
    [("first", "InvalidAMIName.Duplicate"), ("no", "InvalidAMIName.Malformed"), ("a:b", "InvalidAMIName.Malformed")],
)
def test_an_image_name_is_well_formed_and_unique(account: _Account, name: str, code: str) -> None:
    account.launch()
    account.text("CreateImage", InstanceId=account.machines[0].name, Name="first")
    answer = account.ask("CreateImage", InstanceId=account.machines[0].name, Name=name)
    assert (answer.status, _one("Code", answer.body.decode())) == (400, code)


def test_a_copy_is_pending_for_a_while_and_keeps_tags_when_asked(account: _Account) -> None:
    source = _stock_ami(_REGION)
    account.text("CreateTags", ResourceId__1=source, Tag__1__Key="a", Tag__1__Value="kept")
    fields = {"SourceRegion": _REGION, "SourceImageId": source, "Name": "copy", "CopyImageTags": "true"}
    image = _one("imageId", account.text("CopyImage", region="us-east-1", **fields))
    seen = [account.text("DescribeImages", region="us-east-1", ImageId__1=image) for _ in range(3)]
    assert [_one("imageState", each) for each in seen] == ["pending", "pending", "available"]
    assert "<value>kept</value>" in seen[0]


def test_a_client_token_keeps_its_answer_when_the_copy_is_deregistered(account: _Account) -> None:
    fields = {"SourceRegion": _REGION, "SourceImageId": _stock_ami(_REGION), "Name": "copy", "ClientToken": "t-1"}
    image = _one("imageId", account.text("CopyImage", **fields))
    account.text("DeregisterImage", ImageId=image)
    assert _one("imageId", account.text("CopyImage", **fields)) == image
    assert image not in account.text("DescribeImages", Filter__1__Name="image-id", Filter__1__Value__1=image)
    other = account.ask("CopyImage", **{**fields, "Description": "another"})
    assert (other.status, _one("Code", other.body.decode())) == (400, "IdempotentParameterMismatch")
    assert _one("imageId", account.text("CopyImage", **{**fields, "ClientToken": "t-2"})) != image
    elsewhere = account.text("CopyImage", region="us-east-1", **{**fields, "Description": "another"})
    assert _one("imageId", elsewhere) != image


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        ("lambda.eu-west-1.amazonaws.com", "unexpected AWS service lambda.eu-west-1.amazonaws.com"),
        ("ec2.eu-west-1.amazonaws.com", "unexpected AWS request POST ec2.eu-west-1.amazonaws.com/ Invent"),
    ],
)
def test_what_nobody_plays_is_a_fault(account: _Account, host: str, fault: str) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = account.aws(Request("POST", host, "/", {}, headers, b"Action=Invent&Version=2016-11-15", "/"))
    assert (answer.status, answer.fault) == (501, fault)


def test_the_operators_address_is_outside_of_every_machine(account: _Account) -> None:
    assert account.aws(Request("GET", "checkip.amazonaws.com", "/")).body == b"203.0.113.7\n"
