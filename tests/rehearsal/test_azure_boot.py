"""What Azure tells a machine that boots, and what it takes from it: wireserver, provisioning DVD and metadata."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
import urllib.parse
import zipfile
from xml.etree import ElementTree as ET

import pytest

from imagegen.rehearsal.boot.model import Instance
from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.clouds.azure.boot import AzurePlatform, make_instance
from imagegen.rehearsal.clouds.azure.provisioning_dvd import make_dvd, make_environment
from imagegen.rehearsal.clouds.azure.wireserver import Report
from imagegen.rehearsal.machine.address import NODE_ADDRESS
from imagegen.rehearsal.network.messages import Request, Response, parse_target

_WIRESERVER = "168.63.129.16"
_METADATA = "169.254.169.254"
_INSTANCE = Instance(
    "node-1", "8c4f3c6e-0000-4000-8000-000000000001._node-1", b"#cloud-config\n", {}, "capi", "pass<&>"
)
_VERSION = {"x-ms-version": "2015-04-05"}
_NS = {"ovf": "http://schemas.dmtf.org/ovf/environment/1", "wa": "http://schemas.microsoft.com/windowsazure"}
_TIMED_OUT = "OSProvisioningTimedOut: OS Provisioning for VM 'node-1' did not finish in the allotted time."
_FAILED = "OSProvisioningClientError: OS provisioning for VM 'node-1' failed. Error details: "


def _make(instance: Instance = _INSTANCE) -> AzurePlatform:
    """What a machine finds that takes no time."""
    return AzurePlatform(instance, lambda: 0.0)


def _send(platform: AzurePlatform, method: str, target: str, body: bytes = b"", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path, query = parse_target(target)
    return platform.hosts[_WIRESERVER](Request(method, _WIRESERVER, path, query, named, body, target))


def _parse(text: str | bytes) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  # the stand-in's own


def _goal_state(platform: AzurePlatform) -> ET.Element:
    return _parse(_send(platform, "GET", "/machine?comp=goalstate", x_ms_version="2012-11-30").body)


def _identity(platform: AzurePlatform) -> dict[str, str]:
    root = _goal_state(platform)
    return {
        "incarnation": root.findtext("Incarnation", ""),
        "container": root.findtext("Container/ContainerId", ""),
        "instance": root.findtext("Container/RoleInstanceList/RoleInstance/InstanceId", ""),
    }


def _health(state: str, details: str = "", **identity: str) -> bytes:
    return (
        f"<Health><GoalStateIncarnation>{identity['incarnation']}</GoalStateIncarnation><Container>"
        f"<ContainerId>{identity['container']}</ContainerId><RoleInstanceList><Role>"
        f"<InstanceId>{identity['instance']}</InstanceId><Health><State>{state}</State>{details}</Health>"
        "</Role></RoleInstanceList></Container></Health>"
    ).encode()


def _details(sub_status: str, description: str) -> str:
    return f"<Details><SubStatus>{sub_status}</SubStatus><Description>{description}</Description></Details>"


def _report(platform: AzurePlatform, state: str, details: str = "", **changes: str) -> int:
    body = _health(state, details, **(_identity(platform) | changes))
    return _send(platform, "POST", "/machine?comp=health", body, x_ms_version="2015-04-05").status


_READY = ("Ready", "")
_STARTED = ("NotReady", _details("Provisioning", "Preparing"))
_BROKEN = ("NotReady", _details("ProvisioningFailed", "no disk"))


@pytest.mark.parametrize(
    ("reports", "refusal"),
    [
        ([], _TIMED_OUT),
        ([_STARTED], _TIMED_OUT),
        ([_READY], None),
        ([_STARTED, _READY, _READY], None),
        ([_STARTED, _BROKEN], f"{_FAILED}ProvisioningFailed: no disk."),
        ([_BROKEN, _READY], f"{_FAILED}ProvisioningFailed: no disk."),
        ([_READY, _BROKEN], None),
    ],
)
def test_the_first_report_that_ends_provisioning_counts(reports: list[tuple[str, str]], refusal: str | None) -> None:
    platform = _make()
    assert [_report(platform, *each) for each in reports] == [200 for _ in reports]
    assert [report.state for report in platform.reports] == [state for state, _ in reports]
    said = platform.refusal()
    assert (said is None, (said or "").startswith(refusal or "")) == (refusal is None, True)


@pytest.mark.parametrize(
    ("reports", "refusal"),
    [
        ([(2400.0, _READY)], ""),
        ([(2401.0, _READY)], "Ready came 2401 seconds after the machine's creation, and Azure waits 2400 seconds."),
        ([(10.0, _READY), (9000.0, _BROKEN)], ""),
        ([(10.0, _STARTED), (9000.0, _BROKEN)], "NotReady came 9000 seconds after"),
    ],
)
def test_azure_gives_up_after_its_time(reports: list[tuple[float, tuple[str, str]]], refusal: str) -> None:
    now = [0.0]
    platform = AzurePlatform(_INSTANCE, lambda: now[0])
    for now[0], report in reports:
        assert _report(platform, *report) == 200
    assert [report.at_s for report in platform.reports] == [at_s for at_s, _ in reports]
    said = platform.refusal() or ""
    assert (said.startswith(_TIMED_OUT), refusal in said) == (bool(refusal), True)


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"incarnation": "2"}, 410), ({"container": "another"}, 400), ({"instance": "_node-2"}, 400)],
)
def test_a_report_of_another_machine_or_goal_state_does_not_count(changes: dict[str, str], status: int) -> None:
    platform = _make()
    assert _report(platform, "Ready", **changes) == status
    assert (list(platform.reports), (platform.refusal() or "")[:22]) == ([], "OSProvisioningTimedOut")


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "status"),
    [
        ("GET", "/?comp=Versions", b"", {}, 200),
        ("GET", "/?comp=versions", b"", {}, 200),
        ("GET", "/", b"", {}, 400),
        ("GET", "/machine?comp=goalstate", b"", {}, 400),
        ("GET", "/machine?comp=goalstate", b"", {"x_ms_version": "2099-01-01"}, 400),
        ("GET", "/machine/?comp=goalstate", b"", {"x_ms_version": "2012-11-30"}, 200),
        ("GET", "/machine/?comp=goalstate", b"", {"x_ms_version": "2015-04-05", "x_ms_agent_name": "other"}, 200),
        ("POST", "/machine?comp=goalstate", b"", {"x_ms_version": "2012-11-30"}, 404),
        ("GET", "/machine?comp=health", b"", {"x_ms_version": "2012-11-30"}, 404),
        ("POST", "/machine?comp=health", b"<Health", {"x_ms_version": "2012-11-30"}, 400),
        ("POST", "/machine?comp=health", b"<Other/>", {"x_ms_version": "2012-11-30"}, 400),
        ("POST", "/machine?comp=health", b"<Health/>", {"x_ms_version": "2012-11-30"}, 410),
        ("POST", "/machine?comp=telemetrydata", b"<TelemetryData/>", {"x_ms_version": "2012-11-30"}, 200),
        ("POST", "/machine?comp=roleProperties", b"<RoleProperties/>", {"x_ms_version": "2012-11-30"}, 400),
        ("GET", "/machine/a/b?comp=config&type=sharedConfig", b"", {"x_ms_version": "2012-11-30"}, 404),
        ("POST", "/provisioning/health", b'{"state": "Ready"}', {}, 201),
        ("POST", "/provisioning/health", b'{"state": "Fine"}', {}, 400),
        ("POST", "/provisioning/health", b'"Ready"', {}, 400),
        ("POST", "/provisioning/health", b"Ready", {}, 400),
        ("GET", "/metadata/instance?api-version=2021-02-01", b"", {"metadata": "true"}, 400),
    ],
)
def test_the_wireserver_answers_what_it_knows(
    method: str, target: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = _send(_make(), method, target, body, **headers)
    assert (answer.status, answer.note.startswith("refused: ")) == (status, status >= 400)
    if status >= 400:
        assert _parse(answer.body).findtext("Message")


def test_a_report_in_json_needs_no_goal_state() -> None:
    platform = _make()
    details = {"subStatus": "ProvisioningFailed", "description": "no disk"}
    body = json.dumps({"state": "NotReady", "details": details}).encode()
    assert _send(platform, "POST", "/provisioning/health", body).status == 201
    assert list(platform.reports) == [Report("NotReady", "ProvisioningFailed: no disk", 0.0)]


def test_every_address_of_the_goal_state_answers() -> None:
    platform = _make()
    configuration = _goal_state(platform).find("Container/RoleInstanceList/RoleInstance/Configuration")
    assert configuration is not None
    urls = {item.tag: urllib.parse.urlsplit(item.text or "") for item in configuration if item.tag != "ConfigName"}
    assert list(urls) == ["HostingEnvironmentConfig", "SharedConfig", "ExtensionsConfig", "FullConfig"]
    assert {url.netloc for url in urls.values()} == {f"{_WIRESERVER}:80"}
    roots = [
        _parse(_send(platform, "GET", f"{url.path}?{url.query}", x_ms_version="2015-04-05").body).tag
        for url in urls.values()
    ]
    assert roots == ["HostingEnvironmentConfig", "SharedConfig", "Extensions", "RoleConfig"]


@pytest.mark.parametrize(("changes", "status"), [({}, 202), ({"instance": "_node-2"}, 400)])
def test_the_thumbprint_of_remote_desktop_is_taken(changes: dict[str, str], status: int) -> None:
    platform = _make()
    known = _identity(platform) | changes
    body = (
        f"<RoleProperties><Container><ContainerId>{known['container']}</ContainerId><RoleInstances><RoleInstance>"
        f"<Id>{known['instance']}</Id><Properties><Property name='CertificateThumbprint' value='AB12'/>"
        "</Properties></RoleInstance></RoleInstances></Container></RoleProperties>"
    ).encode()
    assert _send(platform, "POST", "/machine?comp=roleProperties", body, x_ms_version="2015-04-05").status == status


def test_a_machine_keeps_its_identity_when_it_boots_again() -> None:
    assert _identity(_make()) == _identity(_make())
    assert _identity(_make())["instance"] == _INSTANCE.instance_id
    another = dataclasses.replace(_INSTANCE, instance_id="x._node-2")
    assert _identity(_make(another))["container"] != _identity(_make())["container"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ComputerName", "node-1"),
        ("AdminUsername", "capi"),
        ("AdminPassword", "pass<&>"),
        ("EnableAutomaticUpdates", "true"),
        ("TimeZone", "UTC"),
        ("CustomData", base64.b64encode(b"#cloud-config\n").decode()),
        ("ProvisionGuestAgent", "true"),
        ("KmsServerHostname", "kms.core.windows.net"),
    ],
)
def test_the_ovf_environment_has_what_the_creator_asked_for(name: str, value: str) -> None:
    root = _parse(make_environment(_INSTANCE))
    assert root.tag == "{http://schemas.dmtf.org/ovf/environment/1}Environment"
    paths = (
        "wa:ProvisioningSection/wa:WindowsProvisioningConfigurationSet",
        "wa:PlatformSettingsSection/wa:PlatformSettings",
    )
    assert [found for path in paths if (found := root.findtext(f"{path}/wa:{name}", None, _NS)) is not None] == [value]


def test_the_dvd_has_the_files_that_agents_read() -> None:
    files = make_dvd(_INSTANCE)
    package = re.search(r"<GuestAgentPackageName>([^<]+)</", files["ovf-env.xml"].decode())
    assert package is not None
    assert sorted(files) == [
        r"$$\OEM\DATALOSS_WARNING_README.txt",
        rf"$$\OEM\GuestAgent\{package[1]}",
        "CustomData.bin",
        "E6DA6616-8EC4-48E0-BE93-58CE6ACE3CFB.tag",
        "ovf-env.xml",
    ]
    assert files["CustomData.bin"] == b"#cloud-config\n"
    with zipfile.ZipFile(io.BytesIO(files[rf"$$\OEM\GuestAgent\{package[1]}"])) as archive:
        assert {"WaAppAgent.exe", "TransparentInstaller.dll", "WindowsAzureGuestAgent.exe"} <= set(archive.namelist())
        assert archive.read("TransparentInstaller.dll").startswith(b"MZ")


def test_without_user_data_the_dvd_has_no_custom_data() -> None:
    files = make_dvd(dataclasses.replace(_INSTANCE, user_data=b""))
    assert ("CustomData.bin" in files, b"CustomData" in files["ovf-env.xml"]) == (False, False)


_API = "api-version=2021-02-01"


def _metadata(target: str, method: str = "GET", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path, query = parse_target(target)
    return _make().hosts[_METADATA](Request(method, _METADATA, path, query, named, b"", target))


@pytest.mark.parametrize(
    ("target", "headers", "status", "text"),
    [
        (f"/metadata/instance?{_API}", {}, 400, "Required metadata header not specified"),
        (f"/metadata/instance?{_API}", {"metadata": "false"}, 400, "Required metadata header not specified"),
        (f"/metadata/instance?{_API}", {"metadata": "true", "x_forwarded_for": "192.0.2.1"}, 400, "X-Forwarded-For"),
        ("/metadata/instance", {"metadata": "true"}, 400, '"newest-versions": ["'),
        ("/metadata/instance?api-version=2020", {"metadata": "true"}, 400, "api-version is invalid"),
        (f"/metadata/instance/compute/name?{_API}", {"metadata": "True"}, 400, "format is not supported"),
        (f"/metadata/instance/compute/name?{_API}&format=text", {"metadata": "true"}, 200, "node-1"),
        (f"/metadata/instance/compute/customData?{_API}&format=text", {"metadata": "true"}, 200, ""),
        (f"/metadata/instance?{_API}&format=text", {"metadata": "true"}, 200, "compute/\nnetwork/"),
        (
            f"/metadata/instance/network/interface/0/ipv4/ipAddress/0/privateIpAddress?{_API}&format=text",
            {"metadata": "true"},
            200,
            NODE_ADDRESS,
        ),
        (f"/metadata/instance/network/interface/-1?{_API}", {"metadata": "true"}, 404, "Not found"),
        (f"/metadata/instance/compute/name/x?{_API}", {"metadata": "true"}, 404, "Not found"),
        (f"/metadata/other?{_API}", {"metadata": "true"}, 404, "Not found"),
        ("/metadata/versions", {"metadata": "true"}, 200, '"2021-02-01"'),
        (f"/metadata/scheduledevents?{_API}", {"metadata": "true"}, 200, '"Events": []'),
        (f"/metadata/identity/oauth2/token?{_API}", {"metadata": "true"}, 400, "Identity not found"),
    ],
)
def test_the_metadata_service_wants_its_header_and_a_version(
    target: str, headers: dict[str, str], status: int, text: str
) -> None:
    answer = _metadata(target, **headers)
    assert (answer.status, answer.fault) == (status, "")
    assert text in answer.body.decode()


def test_the_metadata_service_is_read_only() -> None:
    assert _metadata(f"/metadata/instance?{_API}", "POST", metadata="true").status == 405


def test_a_document_signed_by_azure_is_refused_by_name() -> None:
    answer = _metadata(f"/metadata/attested/document?{_API}", metadata="true")
    assert answer.fault == f"the stand-in of {_METADATA} has no key of Azure to sign /metadata/attested/document"


def test_the_metadata_do_not_hold_what_the_creator_kept_secret() -> None:
    text = _metadata(f"/metadata/instance?{_API}", metadata="true").body.decode()
    assert json.loads(text)["compute"]["osProfile"]["computerName"] == "node-1"
    assert [
        secret for secret in ("pass<&>", "cloud-config", base64.b64encode(b"#cloud").decode()) if secret in text
    ] == []


def test_a_machine_finds_the_wireserver_by_dhcp() -> None:
    platform = stand_in("azure").make_platform(_INSTANCE, lambda: 0.0)
    assert sorted(platform.hosts) == [_WIRESERVER, _METADATA]
    assert dict(platform.dhcp_options) == {245: bytes((168, 63, 129, 16))}
    assert list(platform.drives) == ["E:"]


def test_an_ordinary_machine_has_a_name_that_windows_takes_and_a_password_of_its_own() -> None:
    one, other = make_instance(b"data"), make_instance(b"data")
    assert re.fullmatch("node-[a-z0-9]{5}", one.host_name)
    assert one.admin_password != other.admin_password
    assert one.instance_id.endswith(f"._{one.host_name}")
    assert one.admin_password not in repr(one)
