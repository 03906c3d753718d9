"""cloudbase-init's own metadata services read the stand-ins of the clouds over HTTP, and report to them.

The services run in a child process, with what only Windows has replaced: drives, DHCP and its certificate store.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.boot.link_local import LinkLocal
from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.clouds.azure.boot import AzurePlatform
from imagegen.rehearsal.clouds.azure.wireserver import Report
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.model import Instance, Platform

    Services = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.e2e

_USER_DATA = b"## template: jinja\n#cloud-config\nruncmd: [hostname]\n"
_CHILD = """\
import importlib, json, sys, types
asked = json.load(sys.stdin)
store = types.ModuleType("cloudbaseinit.utils.windows.x509")
sys.modules[store.__name__] = store
store.CryptoAPICertManager = None
from cloudbaseinit import conf
from cloudbaseinit.osutils import factory
from cloudbaseinit.utils import dhcp

class Windows:
    def get_logical_drives(self):
        return asked["drives"]

factory.get_os_utils = Windows
dhcp.get_dhcp_options = lambda: {int(number): bytes.fromhex(value) for number, value in asked["dhcp"].items()}
conf.CONF.set_override("retry_count_interval", 0)
module = importlib.import_module("cloudbaseinit.metadata.services." + asked["module"])
service = getattr(module, asked["service"])()
answers = {}
for name, *arguments in asked["calls"]:
    try:
        answer = getattr(service, name)(*arguments)
    except Exception as error:
        answer = "raises " + type(error).__name__
    answers[name] = answer.decode() if isinstance(answer, bytes) else answer
json.dump(answers, sys.stdout, default=str)
"""
_MODULES = {"EC2Service": "ec2service", "AzureService": "azureservice"}


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """Calls the functions of one of cloudbase-init's services, in order. Returns what each of them returned."""

    def call(name: str, platform: Platform, *calls: str | tuple[str, ...]) -> dict[str, Any]:
        folders = []
        for drive, files in platform.drives.items():
            folder = tmp_path / drive.rstrip(":")
            folder.mkdir(exist_ok=True)
            folders.append(str(folder))
            for path, data in files.items():
                (folder / path).write_bytes(data)
        asked = {
            "service": name,
            "module": _MODULES[name],
            "drives": folders,
            "dhcp": {number: value.hex() for number, value in platform.dhcp_options.items()},
            "calls": [[each] if isinstance(each, str) else each for each in calls],
        }
        with LinkLocal(platform.hosts) as link:
            ended = subprocess.run(  # noqa: S603  # this Python, and a program of this test
                [sys.executable, "-c", _CHILD],
                input=json.dumps(asked),
                env={"http_proxy": link.url, "HOME": str(tmp_path)},
                capture_output=True,
                text=True,
                timeout=HANG_S,
                check=False,
            )
        assert ended.returncode == 0, ended.stderr
        assert (link.unknown, link.journal.faults) == ([], [])
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    return call


def _make(cloud: str, **changes: Any) -> tuple[Instance, Platform]:  # noqa: ANN401 - the fields of an instance
    found = stand_in(cloud)
    instance = dataclasses.replace(found.make_instance(_USER_DATA), **changes)
    return instance, found.make_platform(instance, lambda: 0.0)


def test_ec2_service_reads_an_ordinary_instance(services: Services) -> None:
    instance, platform = _make("aws")
    calls = ("load", "get_host_name", "get_instance_id", "get_public_keys", "get_user_data", "get_instance_data")
    answers = services("EC2Service", platform, *calls)
    data = answers.pop("get_instance_data")
    assert answers == {
        "load": True,
        "get_host_name": "ip-10-0-0-7.ec2.internal",
        "get_instance_id": instance.instance_id,
        "get_public_keys": list(instance.public_keys.values()),
        "get_user_data": _USER_DATA.decode(),
    }
    assert data["ds"]["meta_data"]["local_hostname"] == "ip-10-0-0-7.ec2.internal"
    assert platform.refusal() is None


def test_without_a_key_pair_no_template_can_be_rendered(services: Services) -> None:
    answers = services(
        "EC2Service", _make("aws", public_keys={})[1], "load", "get_user_data", "get_public_keys", "get_instance_data"
    )
    assert answers == {
        "load": True,
        "get_user_data": _USER_DATA.decode(),
        "get_public_keys": "raises NotExistingMetadataException",
        "get_instance_data": "raises NotExistingMetadataException",
    }


def test_ec2_service_has_no_token(services: Services) -> None:
    assert services("EC2Service", _make("aws", requires_tokens=True)[1], "load") == {"load": False}


def test_without_user_data_there_is_none_to_run(services: Services) -> None:
    missing = {"load": True, "get_user_data": "raises NotExistingMetadataException"}
    assert services("EC2Service", _make("aws", user_data=b"")[1], *missing) == missing
    assert services("AzureService", _make("azure", user_data=b"")[1], *missing) == missing


def test_azure_service_reads_an_ordinary_machine(services: Services) -> None:
    instance, platform = _make("azure", admin_password="a&<b>'\"")  # noqa: S106 - XML has to escape it
    expected = {
        "load": True,
        "get_host_name": instance.host_name,
        "get_instance_id": instance.instance_id,
        "get_admin_username": "capi",
        "get_admin_password": "a&<b>'\"",
        "get_user_data": _USER_DATA.decode(),
        "get_public_keys": None,
        "get_server_certs": [],
        "get_winrm_listeners_configuration": [],
        "get_enable_automatic_updates": True,
        "get_kms_host": "kms.core.windows.net",
        "get_use_avma_licensing": False,
    }
    agent = {"provision": True, "package_name": "Win7_Win8_IaaS_rd_art_stable_140703-0050_GuestAgentPackage.zip"}
    answers = services("AzureService", platform, *expected, "get_vm_agent_package_provisioning_data")
    assert answers == expected | {"get_vm_agent_package_provisioning_data": agent}
    assert rf"$$\OEM\GuestAgent\{agent['package_name']}" in platform.drives["E:"]


_STARTED = Report("NotReady", "Provisioning: Cloudbase-Init is preparing your computer for first use...", 0.0)
_FAILED = Report("NotReady", "ProvisioningFailed: Provisioning failed", 0.0)


@pytest.mark.parametrize(
    ("calls", "reports", "refusal"),
    [
        (("provisioning_started", "provisioning_completed"), [_STARTED, Report("Ready", "", 0.0)], None),
        (("provisioning_started", "provisioning_failed"), [_STARTED, _FAILED], "OSProvisioningClientError"),
        (("provisioning_started",), [_STARTED], "OSProvisioningTimedOut"),
        ((), [], "OSProvisioningTimedOut"),
    ],
)
def test_azure_service_reports_and_azure_judges(
    services: Services, calls: tuple[str, ...], reports: list[Report], refusal: str | None
) -> None:
    platform = AzurePlatform(_make("azure")[0], lambda: 0.0)
    assert services("AzureService", platform, "load", *calls) == {"load": True} | dict.fromkeys(calls)
    assert list(platform.reports) == reports
    said = platform.refusal()
    assert (said and said.partition(":")[0]) == refusal


def test_azure_service_reports_a_certificate_and_reads_its_configurations(services: Services) -> None:
    platform = _make("azure")[1]
    configurations = ("_get_hosting_environment", "_get_shared_config", "_get_extensions_config", "_get_full_config")
    calls = [*configurations, ("post_rdp_cert_thumbprint", "AB12")]
    answers = services("AzureService", platform, "load", *calls)
    assert [name for name, answer in answers.items() if str(answer).startswith("raises")] == []
