"""What lies on an image for its nodes, by what a config asks for. Nothing on the model machine would miss it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base import contents
from imagegen.catalog.facts import table
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.settle.spec import settle
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from imagegen.steps.evaluate import EvaluatedStep

STEPS = load_steps(contents.SHIPPED.step_roots)
TARGETS: dict[str, Any] = {
    "aws": {"region": "us-east-1"},
    "azure": {"location": "westeurope", "gallery": {"resource_group": "i", "name": "i", "definition": "windows"}},
}
SCHANNEL = r"HKLM:\SYSTEM\CurrentControlSet\Control\SecurityProviders\SCHANNEL"
PROGRAMS = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Image File Execution Options"
OVERRIDES = r"HKLM:\SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides"
PADDING = r"Microsoft\Cryptography\Wintrust\Config"
LOGS = r"C:\var\log"
SNAPSHOTS = r"C:\ProgramData\containerd\root\io.containerd.snapshotter.v1.windows\snapshots"


def evaluate(target: str, **asked: Any) -> tuple[EvaluatedStep, ...]:  # noqa: ANN401 - any section
    release = asked.pop("windows", {})
    config = ImageConfig.model_validate(
        {
            "name": "node",
            "windows": {"release": "2022", **release},
            "kubernetes": {"version": "1.36.4"},
            "runtime": {"containerd": {"version": "2.3.4"}},
            "targets": {target: TARGETS[target]},
            **asked,
        }
    )
    return evaluate_steps(settle(config, Document("config.yaml", {}, {}), target), STEPS)


def find(kind: str, *, target: str = "aws", **asked: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any section
    """The fields of each resource of a kind."""
    return [draft.fields for step in evaluate(target, **asked) for draft in step.drafts if draft.kind == kind]


def registry(**asked: Any) -> dict[tuple[str, str], Any]:  # noqa: ANN401 - any section
    """The data of the registry by key and name."""
    return {(fields["key"], fields["name"]): fields["data"] for fields in find("registry", **asked)}


def inbound(**asked: Any) -> set[tuple[str, int | str]]:  # noqa: ANN401 - any section
    """What the firewall lets in."""
    return {
        (fields["protocol"], fields["port"])
        for fields in find("firewall", **asked)
        if (fields["direction"], fields["action"]) == ("in", "allow")
    }


def unscanned(name: str, **asked: Any) -> set[str]:  # noqa: ANN401 - any section
    return {fields[name] for fields in find("defender", **asked) if fields.get(name)}


def read_file(target: str, form: str, **cni: Any) -> str:  # noqa: ANN401 - any value
    """A file of the step cni whose name has this form."""
    steps = evaluate(target, cni=cni, kube_proxy="none" if cni["plugin"] == "calico" else "service")
    texts = {path: text for step in steps for path, text in step.texts.items() if step.step.name == "cni"}
    (text,) = [text for path, text in texts.items() if re.fullmatch(rf"files/cni/{form}", path)]
    return text.decode()


def plugin(target: str, **cni: Any) -> dict[str, Any]:  # noqa: ANN401 - any value
    """The first plugin of a network, as the node's runtime reads it."""
    found: dict[str, Any] = json.loads(read_file(target, r".*\.conflist", **cni))["plugins"][0]
    return found


@pytest.mark.parametrize(
    ("cni", "target", "path"),
    [
        ({"plugin": "azure", "version": "1.6.21"}, "azure", ("windowsSettings", "enableLoopbackDSR")),
        ({"plugin": "calico", "mode": "vxlan"}, "aws", ("windows_loopback_DSR",)),
        ({"plugin": "ovn-kubernetes", "version": "1.3.0"}, "aws", ("loopbackDSR",)),
        ({"plugin": "flannel"}, "aws", ("delegate", "loopbackDSR")),
        ({"plugin": "win-bridge"}, "aws", ("loopbackDSR",)),
        ({"plugin": "win-overlay"}, "aws", ("loopbackDSR",)),
    ],
    ids=["azure", "calico", "ovn-kubernetes", "flannel", "win-bridge", "win-overlay"],
)
def test_a_pod_reaches_itself_through_its_service(cni: dict[str, Any], target: str, path: tuple[str, ...]) -> None:
    """kube-proxy has direct server return: without the key of its plugin, Windows drops these packets."""
    value: Any = plugin(target, **cni)
    for name in path:
        value = value[name]
    assert value is True


def test_with_direct_server_return_azures_plugin_routes_no_services() -> None:
    policies = plugin("azure", plugin="azure", version="1.6.21")["AdditionalArgs"]
    assert [policy["Value"]["Type"] for policy in policies] == ["OutBoundNAT", "ACL", "ACL", "ACL", "ACL"]


def test_calico_is_told_the_folders_of_its_plugin() -> None:
    """Its own script guesses them from containerd's command line, whose paths are in quotes."""
    text = read_file("aws", r"services.*\.txt", plugin="calico", mode="vxlan")
    lines = [line for line in text.splitlines() if line.startswith("Calico")]
    assert len(lines) == 2
    for line in lines:
        assert {r"CNI_BIN_DIR=C:\opt\cni\bin", r"CNI_CONF_DIR=C:\etc\cni\net.d"} <= {*line.split("|")}


HEALTH = {("TCP", 10256), ("TCP", "30000-32767")}


@pytest.mark.parametrize(
    ("asked", "is_open"),
    [
        ({"kube_proxy": "service", "cni": {"plugin": "win-bridge"}}, True),
        ({"kube_proxy": "hostprocess", "kube_proxy_health_checks": True}, True),
        ({"kube_proxy": "hostprocess"}, False),
        ({"kube_proxy": "none"}, False),
    ],
)
def test_load_balancers_reach_kube_proxys_health(asked: dict[str, Any], *, is_open: bool) -> None:
    assert inbound(**asked) & HEALTH == (HEALTH if is_open else set())


@pytest.mark.parametrize(
    ("cni", "ports"),
    [
        ({"plugin": "flannel"}, {4789}),
        ({"plugin": "flannel", "mode": "host-gw"}, set()),
        ({"plugin": "win-overlay"}, {4789}),
        ({"plugin": "win-bridge"}, set()),
        ({"plugin": "ovn-kubernetes", "version": "1.3.0"}, {4789}),
        ({"plugin": "ovn-kubernetes", "version": "1.3.0", "port": 9898}, {9898}),
        ({"plugin": "calico", "mode": "vxlan"}, {4789}),
        ({"plugin": "calico"}, set()),
        ({"plugin": "none"}, set()),
    ],
)
def test_other_nodes_reach_the_overlay(cni: dict[str, Any], ports: set[int]) -> None:
    assert {port for protocol, port in inbound(cni=cni, kube_proxy="none") if protocol == "UDP"} == ports


def test_every_script_of_an_image_runs_whatever_the_base_images_policy_is() -> None:
    """The local policy of the base image may be Restricted or AllSigned."""
    nssm = {"kubernetes": {"version": "1.36.4", "service_manager": "nssm"}}
    variants: tuple[dict[str, Any], ...] = ({}, nssm, {"ssh": {}})
    commands = [
        text
        for asked in variants
        for kind in ("service", "task", "registry", "command")
        for fields in find(kind, **asked)
        for text in map(str, fields.values())
        if "-File " in text and ".ps1" in text
    ]
    assert len(commands) > 5
    assert [text for text in commands if "-ExecutionPolicy Bypass -File " not in text] == []


@pytest.mark.parametrize(("hyper_v", "starts"), [("none", []), ("tools", ["delayed"]), ("isolation", ["delayed"])])
def test_winrm_waits_for_hyper_vs_network(hyper_v: str, starts: list[str]) -> None:
    """Otherwise Packer connects while Windows still sets up its network, and the connection breaks."""
    services = find("service", windows={"hyper_v": hyper_v})
    assert [fields["start"] for fields in services if fields["name"] == "WinRM"] == starts


def test_what_runs_pods_is_not_starved_by_them() -> None:
    programs = registry(kube_proxy="service", cni={"plugin": "win-bridge"})
    for name in ("containerd.exe", "kube-proxy.exe"):
        assert programs[rf"{PROGRAMS}\{name}\PerfOptions", "CpuPriorityClass"] == 6


def test_windows_checks_the_padding_of_signatures() -> None:
    found = registry()
    for folder in ("", "Wow6432Node\\"):
        assert found[rf"HKLM:\SOFTWARE\{folder}{PADDING}", "EnableCertPaddingCheck"] == 1


@pytest.mark.parametrize(
    ("asked", "programs"),
    [
        ({"cni": {"plugin": "win-overlay"}}, {"host-local", "win-overlay"}),
        ({"cni": {"plugin": "calico", "mode": "vxlan"}, "kube_proxy": "none"}, {"calico", "calico-ipam"}),
        (
            {"cni": {"plugin": "azure", "version": "1.6.21"}, "target": "azure"},
            {"azure-vnet", "azure-vnet-ipam", "azure-vnet-telemetry"},
        ),
        ({"cni": {"plugin": "flannel"}}, {"flannel", "host-local", "win-overlay"}),
        ({}, set()),
    ],
)
def test_defender_scans_no_file_for_which_a_pod_waits(asked: dict[str, Any], programs: set[str]) -> None:
    folder = "C:\\opt\\cni\\bin\\"
    found = {path for path in unscanned("process", **asked) if path.startswith(folder)}
    assert found == {f"{folder}{name}.exe" for name in programs}
    assert {SNAPSHOTS, rf"{LOGS}\containerd", rf"{LOGS}\kubelet"} <= unscanned("path", **asked)


def test_defender_scans_no_log_of_kube_proxy() -> None:
    assert rf"{LOGS}\kube-proxy" in unscanned("path", kube_proxy="service", cni={"plugin": "win-bridge"})


PAGE_FILE = (r"HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management", "PagingFiles")


def test_the_page_file_has_its_size() -> None:
    assert registry(windows={"page_file_mb": 8096})[PAGE_FILE] == [r"C:\pagefile.sys 8096 8096"]
    assert PAGE_FILE not in registry()


@pytest.mark.parametrize("release", ["2019", "2022", "2025"])
def test_weak_tls_is_off_where_it_is_asked(release: str) -> None:
    found = registry(windows={"release": release, "disable_weak_tls": True})
    off = {
        (rf"{SCHANNEL}\Protocols\{protocol}\{side}", name): data
        for protocol in ("TLS 1.0", "TLS 1.1")
        for side in ("Client", "Server")
        for name, data in (("Enabled", 0), ("DisabledByDefault", 1))
    }
    ciphers = ("RC4 40/128", "RC4 56/128", "RC4 64/128", "RC4 128/128", "Triple DES 168")
    off |= {(rf"{SCHANNEL}\Ciphers\{cipher}", "Enabled"): 0 for cipher in ciphers}
    assert {place: data for place, data in found.items() if place[0].startswith(SCHANNEL)} == off
    assert [place for place in registry(windows={"release": release}) if place[0].startswith(SCHANNEL)] == []


@pytest.mark.parametrize("release", ["2022", "2025"])
def test_a_set_of_fixes_is_there_by_choice(release: str) -> None:
    """Where the release itself has a value, that stays: the newer of two sources wanted the opposite."""
    rows = table("windows")["fix_sets"]["aks"]["releases"][release]
    wanted = {(row["key"], row["name"]): row["data"] for row in rows}
    plain, found = registry(windows={"release": release}), registry(windows={"release": release, "fixes": ["aks"]})
    assert {place: data for place, data in found.items() if place not in plain} == {
        place: data for place, data in wanted.items() if place not in plain
    }
    assert {place: found[place] for place in plain} == plain
    assert wanted.keys() & plain.keys() == ({(OVERRIDES, "1114842764")} if release == "2022" else set())


def test_every_category_of_updates_has_its_own_guid() -> None:
    rows = table("updates")["categories"]
    assert rows["updates"]["guid"] == "CD5FFD1E-E932-4E3A-BF74-18BF0B1BBD83"
    assert len({row["guid"] for row in rows.values()}) == len(rows)
