"""All that a config can say of AWS at once, taken by the real plugin and by our own client in a private network."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from imagegen.base.console import Console
from imagegen.base.contents import PACKER
from imagegen.base.templating import render_text
from imagegen.build import process
from imagegen.build.tools import find_tools
from imagegen.plan.model import BuildPart, BuildPlan, ImagePart
from imagegen.providers import RunFacts
from imagegen.providers.aws.settings import Settings
from imagegen.providers.provider import provider
from imagegen.rehearsal.clouds.aws.base_images import custom_image
from imagegen.rehearsal.clouds.aws.cloud import AwsOptions
from imagegen.rehearsal.clouds.aws.existing_resources import ExistingResources
from imagegen.rehearsal.network.network import Network
from imagegen.rehearsal.winrm import packer
from imagegen.rehearsal.winrm.command import Result
from imagegen.rehearsal.winrm.server import WinRMServer
from tests.deadlines import HANG_S
from tests.provider_answers import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.winrm.command import Write

pytestmark = pytest.mark.e2e

_DEADLINE_S = HANG_S
_BASE = custom_image("hardened-windows-2022-*", "111122223333")
_NETWORK: dict[str, Any] = {
    "vpc_id": "vpc-0123456789abcdef0",
    "subnet_id": "subnet-0123456789abcdef0",
    "security_group_ids": ["sg-0123456789abcdef0"],
    "public_address": False,
    "reach_by": "private",
}
_RUN_ID, _EXPIRES_AT = "20261118t100000z-1a2b3c", "2026-11-18T16:00:00Z"
_EVERYTHING: dict[str, Any] = {
    "region": "eu-west-1",
    "instance_types": ["m6i.large", "m5.large"],
    "spot": {"max_price": "0.25"},
    "network": _NETWORK,
    "iam_instance_profile": "image-builder",
    "base_image": {"name": "hardened-windows-2022-*", "owner": "111122223333"},
    "disk": {"size_gb": 100, "iops": 4000, "throughput": 250},
    "encryption": {"kms_key": "alias/here", "region_kms_keys": {"us-east-1": "alias/there"}},
    "require_imds_tokens": True,
    "auth": {"profile": "images", "assume_role": {"role_arn": "arn:aws:iam::111122223333:role/images"}},
    "name_prefix": "platform-ami",
    "tags": {"team": "platform", "imagegen_name": "another"},
    "publish": {"regions": ["us-east-1"]},
}
_EXISTING = ExistingResources(
    vpc_id=_NETWORK["vpc_id"],
    subnet_id=_NETWORK["subnet_id"],
    security_group_ids=tuple(_NETWORK["security_group_ids"]),
    instance_profile=_EVERYTHING["iam_instance_profile"],
    private=True,
)


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
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """A network with the operator's own things in it, and this process inside of it."""
    with contextlib.ExitStack() as guests:

        def start(identity: MachineIdentity) -> int:
            certificate = net.listener_context(identity)
            server = WinRMServer(
                _Quiet(), username=identity.username, password=identity.password, certificate=certificate
            )
            return guests.enter_context(server).port

        profile = (_EVERYTHING["auth"]["profile"], tmp_path / "credentials")
        aws = AwsOptions(regions=("eu-west-1", "us-east-1"), existing=_EXISTING, images=(_BASE,), profile=profile)
        net = guests.enter_context(Network(tmp_path / "network", [aws], on_machine=start))
        wanted = net.child_environ(os.environ)
        for name in set(os.environ) - set(wanted):
            monkeypatch.delenv(name)
        for name, value in net.environ.items():
            monkeypatch.setenv(name, value)
        yield net


def _plan(settings: Settings, run: RunFacts) -> BuildPlan:
    aws = provider("aws")
    base = aws.look_up_base(settings, aws.base_request(settings, {}), run)
    assert base.identity == {"owner": _BASE.owner, "name": _BASE.name}
    versions = {"kubernetes": "1.36.4", "containerd": "2.3.4", "cloudbase_init": "1.1.8"}
    image = ImagePart("aws", {"release": "2022"}, base.identity, versions, (), {}, {}, {})
    return BuildPlan(image, BuildPart("node", "aws", base.place, {}, {}, {}, {}, {}), settings, 360)


def _write_tree(plan: BuildPlan, tree: Path) -> None:
    aws = provider("aws")
    source = aws.source_values(plan)
    plugin = {"name": "amazon", "source": "github.com/hashicorp/amazon", "version": ">= 1.2.6"}
    given = {"source": source, "plugin": plugin, "has_registry_credentials": False, "has_private_downloads": False}
    for name in ("plugins", "variables", "aws/source"):
        text = render_text((PACKER / f"{name}.pkr.hcl.j2").read_text(), given)
        (tree / f"{name.rpartition('/')[2]}.pkr.hcl").write_text(text)
    (tree / "build.pkr.hcl").write_text('build {\n  sources = ["source.amazon-ebs.image"]\n}\n')
    paths = (
        *("bundle_path", "report_path", "start_path"),
        *("generalise_path", "generalise", "logs_path", "logs"),
    )
    values = {
        "aws": source,
        "timeouts": {"winrm": "30s", "restart": "1m", "generalise": "1m"},
        "image": {
            "id": plan.image_id,
            "name": "node",
            "title": "a node",
            "versions": plan.image.versions,
            "base": {**plan.image.base, "release": "2022"},
            "tags": aws.image_tags(plan.settings, plan.image.versions).others,
        },
        "guest": {**dict.fromkeys(paths, ""), "phases": {}},
    }
    (tree / "image.auto.pkrvars.json").write_text(json.dumps(values))
    (tree / "guest").mkdir()
    (tree / "guest" / "user-data.txt").write_text("<powershell>\nWrite-Output bootstrap\n</powershell>\n")


def test_everything_at_once_is_built_found_and_published(network: Network, tmp_path: Path) -> None:
    run = RunFacts(dict(os.environ), {}, "2026-11-18T10:00:00Z")
    plan = _plan(Settings.model_validate(_EVERYTHING), run)
    tree = tmp_path / "tree"
    tree.mkdir()
    _write_tree(plan, tree)
    tools = find_tools(environ=os.environ, console=Console(sys.stderr, plain=True), needed=PLUGINS.values())
    facts = ("builder_size=m5.large", f"run_id={_RUN_ID}", f"expires_at={_EXPIRES_AT}")
    argv: list[str | Path] = [tools.packer, "build", *(word for fact in facts for word in ("-var", fact)), tree]
    ended = process.run(argv, environ=dict(os.environ) | dict(tools.environment), cwd=tree, timeout=_DEADLINE_S)
    assert (ended.returncode, network.faults) == (0, []), ended.stdout
    assert "ec2:CreateFleet" in network.notes()
    assert "sts:AssumeRole" in network.notes()

    aws = provider("aws")
    console = Console(io.StringIO(), plain=True)
    built = aws.find_built(plan, run).image
    assert built is not None
    assert aws.read_built(plan, ended.stdout.partition("The artifacts of successful builds are:")[2], run) == built
    assert built.name.startswith("platform-ami-windows-2022-v1.36.4-")
    published = aws.publish(plan, built, run, console)
    assert [image.region for image in published.images] == ["eu-west-1", "us-east-1"]
    for image in published.images:
        _check_image(image.region, image.id)
    _check_builder(boto3.client("ec2", region_name="eu-west-1"))
    # The builder's disk is encrypted, so that no image without encryption is made and copied.
    assert network.notes().count("ec2:CopyImage") == len(published.images) - 1
    assert aws.publish(plan, built, run, Console(io.StringIO(), plain=True)).made == 0
    assert network.faults == []


def _check_image(region: str, ami: str) -> None:
    ec2 = boto3.client("ec2", region_name=region)
    [image] = ec2.describe_images(ImageIds=[ami])["Images"]
    assert image["ImdsSupport"] == "v2.0"
    assert [mapping["Ebs"]["Encrypted"] for mapping in image["BlockDeviceMappings"]] == [True]
    tags = {tag["Key"]: tag["Value"] for tag in image["Tags"]}
    assert (tags["team"], tags["imagegen_name"], tags["Name"]) == ("platform", "node", image["Name"])
    # A finished image says which run made it, and does not expire.
    assert (tags["imagegen_run_id"], tags["imagegen_expires_at"]) == (_RUN_ID, "never")
    assert len(ec2.describe_images(Owners=["self"])["Images"]) == 1


def _check_builder(ec2: Any) -> None:  # noqa: ANN401 - boto3's client of EC2
    [reservation] = ec2.describe_instances()["Reservations"]
    [instance] = reservation["Instances"]
    assert (instance["InstanceType"], instance["State"]["Name"]) == ("m5.large", "terminated")
    [request] = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    for builder in (instance, request):
        tags = {tag["Key"]: tag["Value"] for tag in builder["Tags"]}
        assert (tags["imagegen_run_id"], tags["imagegen_expires_at"]) == (_RUN_ID, _EXPIRES_AT)
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
