"""The private network under its real clients: Packer with both plugins, boto3, and Azure's own SDK."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

import boto3
import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.identity import DefaultAzureCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.compute.models import TargetRegion

from imagegen.base.console import Console
from imagegen.build import process
from imagegen.build.tools import find_tools
from imagegen.rehearsal.clouds.aws.base_images import base_ami_id
from imagegen.rehearsal.clouds.aws.cloud import AwsOptions
from imagegen.rehearsal.clouds.azure.cloud import Azure, AzureOptions
from imagegen.rehearsal.clouds.azure.options import GalleryDefinition
from imagegen.rehearsal.network.messages import HANG_UP, Response
from imagegen.rehearsal.network.network import Network
from imagegen.rehearsal.winrm import packer
from imagegen.rehearsal.winrm.command import Result
from imagegen.rehearsal.winrm.server import WinRMServer
from tests.deadlines import HANG_S
from tests.e2e.rehearsal_support import cloud_of
from tests.provider_answers import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_ec2 import EC2Client

    from imagegen.build.tools import Toolchain
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.winrm.command import Write

pytestmark = pytest.mark.e2e

_DEADLINE_S = HANG_S
_DEFINITION = GalleryDefinition("images", "gallery", "win-2025")
_BASE = "Windows_Server-2022-English-Core-Base-2026.11.11"
_USER_DATA = "<powershell>\nWrite-Output bootstrap\n</powershell>\n"

_AWS_TREE = """\
variable "source_ami" {
  type = string
}

source "amazon-ebs" "windows" {
  region           = "eu-west-1"
  source_ami       = var.source_ami
  instance_type    = "m5.large"
  ami_name         = "network-test"
  user_data_file   = "${path.root}/user-data.txt"
  communicator     = "winrm"
  winrm_username   = "Administrator"
  winrm_use_ssl    = true
  winrm_insecure   = true
  winrm_use_ntlm   = true
  winrm_timeout    = "30s"
  run_tags         = { stage = "build" }
  tags             = { stage = "done" }
  snapshot_tags    = { stage = "snapshot" }
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }
  launch_block_device_mappings {
    device_name           = "/dev/sda1"
    volume_size           = 40
    volume_type           = "gp3"
    delete_on_termination = true
  }
}

build {
  sources = ["source.amazon-ebs.windows"]
}
"""

_AZURE_TREE = """\
variable "subscription" {
  default = env("ARM_SUBSCRIPTION_ID")
}
variable "tenant" {
  default = env("ARM_TENANT_ID")
}
variable "client" {
  default = env("ARM_CLIENT_ID")
}
variable "secret" {
  default   = env("ARM_CLIENT_SECRET")
  sensitive = true
}

source "azure-arm" "windows" {
  subscription_id          = var.subscription
  tenant_id                = var.tenant
  client_id                = var.client
  client_secret            = var.secret
  image_publisher          = "MicrosoftWindowsServer"
  image_offer              = "windowsserver"
  image_sku                = "2025-datacenter-core-smalldisk-g2"
  image_version            = "26100.33296.260809"
  os_type                  = "Windows"
  location                 = "westeurope"
  vm_size                  = "Standard_D4s_v5"
  temp_resource_group_name = "pkr-test"
  communicator             = "winrm"
  winrm_use_ssl            = true
  winrm_insecure           = true
  winrm_use_ntlm           = true
  winrm_username           = "packer"
  winrm_timeout            = "20s"
  azure_tags               = { stage = "build" }

  shared_gallery_image_version_exclude_from_latest = true
  shared_image_gallery_destination {
    subscription         = var.subscription
    resource_group       = "images"
    gallery_name         = "gallery"
    image_name           = "win-2025"
    image_version        = "1.36.1"
    replication_regions  = ["westeurope", "northeurope"]
    storage_account_type = "Standard_ZRS"
  }
}

build {
  sources = ["source.azure-arm.windows"]
}
"""


class _Quiet:
    """A guest that answers Packer's first question and is asked nothing else."""

    def run(self, command: str, write: Write) -> Result:
        if not isinstance(packer.recognise(command, packer.PACKER_SCRIPTS), packer.Probe):
            return Result(exit_code=1, stderr=b"not expected here")
        write(b"WinRM connected.\r\n")
        return Result()

    def disconnected(self) -> None:
        """Its connections are never lost."""

    def restarted(self) -> None:
        """It is never restarted."""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    before = set(threading.enumerate())
    with contextlib.ExitStack() as guests:

        def start(identity: MachineIdentity) -> int:
            server = WinRMServer(
                _Quiet(),
                username=identity.username,
                password=identity.password,
                certificate=net.listener_context(identity),
            )
            return guests.enter_context(server).port

        net = guests.enter_context(
            Network(
                tmp_path / "network",
                [AwsOptions(regions=("eu-west-1", "us-east-1")), AzureOptions(definitions=(_DEFINITION,))],
                on_machine=start,
            )
        )
        yield net
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("rehearsal")]
    assert left == []


@pytest.fixture
def tools() -> Toolchain:
    return find_tools(environ=os.environ, console=Console(sys.stderr, plain=True), needed=PLUGINS.values())


@pytest.fixture
def inside(network: Network, monkeypatch: pytest.MonkeyPatch) -> Network:
    """This process itself inside the network, for the clouds' own SDKs."""
    wanted = network.child_environ(os.environ)
    for name in set(os.environ) - set(wanted):
        monkeypatch.delenv(name)
    for name, value in network.environ.items():
        monkeypatch.setenv(name, value)
    return network


def _build(network: Network, tools: Toolchain, tree: Path, *arguments: str) -> process.Completed:
    environ = network.child_environ(os.environ) | dict(tools.environment)
    argv: list[str | Path] = [tools.packer, "build", *arguments, tree]
    return process.run(argv, environ=environ, cwd=tree, timeout=_DEADLINE_S)


def _ec2(region: str) -> EC2Client:
    return boto3.client("ec2", region_name=region)


def test_packer_builds_an_ami(inside: Network, tools: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "tree.pkr.hcl").write_text(_AWS_TREE)
    (tmp_path / "user-data.txt").write_text(_USER_DATA)
    ended = _build(inside, tools, tmp_path, "-var", f"source_ami={base_ami_id('eu-west-1', _BASE)}")
    assert (ended.returncode, inside.faults) == (0, []), ended.stdout
    [machine] = inside.machines
    assert (machine.image, machine.user_data) == (_BASE, _USER_DATA.encode())
    assert "ec2:GetPasswordData" in inside.notes()
    ec2 = _ec2("eu-west-1")
    [image] = ec2.describe_images(Filters=[{"Name": "tag:stage", "Values": ["done"]}])["Images"]
    assert (image["Name"], image["Platform"], image["State"]) == ("network-test", "windows", "available")
    [snapshot] = ec2.describe_snapshots(SnapshotIds=[image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]])["Snapshots"]
    assert {tag["Key"]: tag["Value"] for tag in snapshot["Tags"]} == {"stage": "snapshot"}
    [reservation] = ec2.describe_instances()["Reservations"]
    [instance] = reservation["Instances"]
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["State"]["Name"] == "terminated"
    assert ec2.describe_key_pairs()["KeyPairs"] == []


def test_packer_fails_by_name_without_the_bootstrap(network: Network, tools: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "tree.pkr.hcl").write_text(_AWS_TREE.replace('"30s"', '"5s"'))
    (tmp_path / "user-data.txt").write_text("#!/bin/sh\n")
    ended = _build(network, tools, tmp_path, "-var", f"source_ami={base_ami_id('eu-west-1', _BASE)}")
    assert ended.returncode == 1
    first, *others = network.faults
    assert first.endswith("has no <powershell> script")
    # Packer may knock once more while the machine goes, and is told that; anything else is a fault of its own.
    assert [fault for fault in others if not fault.endswith((" is shutting-down", " is terminated"))] == []


def test_packer_builds_a_gallery_version(inside: Network, tools: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "tree.pkr.hcl").write_text(_AZURE_TREE)
    ended = _build(inside, tools, tmp_path)
    assert (ended.returncode, inside.faults) == (0, []), ended.stdout
    [machine] = inside.machines
    assert machine.image.endswith(":2025-datacenter-core-smalldisk-g2:26100.33296.260809")
    assert machine.username == "packer"
    assert machine.certificate is not None
    version = _compute(inside).gallery_image_versions.get("images", "gallery", "win-2025", "1.36.1")
    assert version.publishing_profile is not None
    assert version.publishing_profile.exclude_from_latest is True
    regions = [each.name for each in version.publishing_profile.target_regions or []]
    assert regions == ["West Europe", "North Europe"]
    assert dict(version.tags or {}) == {"stage": "build"}
    assert inside.notes("management.azure.com")[-1] == "GET galleries/images/versions"
    assert "DELETE resourcegroups" in inside.notes("management.azure.com")


def test_boto3_publishes_a_copy(inside: Network) -> None:
    source, target = _ec2("eu-west-1"), _ec2("us-east-1")
    base = source.describe_images(
        Owners=["amazon"], Filters=[{"Name": "name", "Values": ["Windows_Server-2022-English-Core-Base-*"]}]
    )["Images"]
    newest = max(base, key=lambda image: image["CreationDate"])
    assert (newest["Name"], newest["ImageOwnerAlias"], newest["Platform"]) == (_BASE, "amazon", "windows")
    assert newest["ImageId"] == base_ami_id("eu-west-1", _BASE)
    copy = target.copy_image(Name="copy", SourceRegion="eu-west-1", SourceImageId=newest["ImageId"])["ImageId"]
    states = [target.describe_images(ImageIds=[copy])["Images"][0]["State"] for _ in range(2)]
    assert states == ["pending", "available"]
    target.create_tags(Resources=[copy], Tags=[{"Key": "id", "Value": "7"}])
    found = target.describe_images(Owners=["self"], Filters=[{"Name": "tag:id", "Values": ["7"]}])["Images"]
    assert [image["ImageId"] for image in found] == [copy]
    assert boto3.client("sts", region_name="eu-west-1").get_caller_identity()["Account"] == "123456789012"
    assert inside.faults == []


def test_a_client_survives_a_fault_that_is_injected_once(inside: Network) -> None:
    busy = Response(503, b"<Response><Errors><Error><Code>Unavailable</Code></Error></Errors></Response>")
    inside.inject("ec2.*", response=busy, when=lambda request: request.form().get("Action") == "DescribeImages")
    inside.inject("ec2.*", response=HANG_UP, when=lambda request: request.form().get("Action") == "DescribeImages")
    _ec2("us-east-1").describe_images(Owners=["amazon"])
    assert [entry.status for entry in inside.journal] == [503, 0, 200]
    assert inside.untriggered_injections == 0


def test_the_azure_sdk_lists_gets_and_updates(inside: Network) -> None:
    client = _compute(inside)
    found = client.virtual_machine_images.list(
        "westeurope",
        "MicrosoftWindowsServer",
        "WindowsServer2022",
        "2022-datacenter-core-g2",
        orderby="name desc",
        top=1,
    )
    assert [each.name for each in found] == ["20348.5499.260809"]
    with pytest.raises(ResourceNotFoundError):
        client.gallery_image_versions.get("images", "gallery", "win-2025", "1.0.0")
    assert list(client.gallery_image_versions.list_by_gallery_image("images", "gallery", "win-2025")) == []
    assert inside.faults == []


def test_the_azure_sdk_replicates_a_version(inside: Network, tools: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "tree.pkr.hcl").write_text(_AZURE_TREE)
    assert _build(inside, tools, tmp_path).returncode == 0
    versions = _compute(inside).gallery_image_versions
    place = ("images", "gallery", "win-2025", "1.36.1")
    version = versions.get(*place)
    assert version.publishing_profile is not None
    version.publishing_profile.target_regions = [
        *(version.publishing_profile.target_regions or []),
        TargetRegion(name="eastus2", regional_replica_count=1),
    ]
    version.publishing_profile.exclude_from_latest = False
    after = versions.begin_create_or_update(*place, version).result()
    assert after.provisioning_state == "Succeeded"
    status = versions.get(*place, expand="ReplicationStatus").replication_status
    assert status is not None
    assert {each.region: each.state for each in status.summary or []} == {
        "West Europe": "Completed",
        "North Europe": "Completed",
        "East US 2": "Completed",
    }
    assert inside.faults == []


def _compute(network: Network) -> ComputeManagementClient:
    return ComputeManagementClient(DefaultAzureCredential(), cloud_of(network, Azure).application.subscription)
