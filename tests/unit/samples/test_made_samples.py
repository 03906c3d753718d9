"""The samples of many configs: the API server of their minor takes them, and they fit the image that they are for."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.catalog.facts import table
from imagegen.plan.context import evaluate_steps
from tests.conftest import load_today
from tests.kubernetes_api.check import wrong_fields
from tests.samples_support import BASE, BRIDGE, CASES, FLANNEL, KUBE_PROXY, WINS, Case, containerd, docker, make, texts

if TYPE_CHECKING:
    from pathlib import Path

UNNAMED = (
    "kube-proxy.yaml: the config has cni.plugin: none, so imagegen does not know the name of the pod network. "
    "Name the plugin that the cluster installs:"
)
# No object, but a file for the API server.
FILES = {"AdmissionConfiguration"}


def read(text: str) -> list[dict[str, Any]]:
    """Read by libyaml, which is as strict as kubectl's library: `a:b` without quotes is an error inside brackets."""
    return [item for item in YAML(typ="safe").load_all(text) if item]


def objects(case: Case) -> list[dict[str, Any]]:
    return [item for text in texts(make(case)).values() for item in read(text)]


@pytest.mark.parametrize("name", CASES)
def test_the_api_server_takes_them(name: str) -> None:
    made = make(CASES[name])
    assert len(texts(made)) == len(made.files)
    found = [item for item in objects(CASES[name]) if item["kind"] not in FILES]
    assert found
    assert [wrong for item in found for wrong in wrong_fields(item, CASES[name].minor)] == []


DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "x"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"spec": {"hostNetwork": True, "containers": [{"name": "x", "image": "y"}]}},
    },
}


@pytest.mark.parametrize(
    ("old", "new", "minor", "wrong"),
    [
        ("hostNetwork", "hostNetworks", 36, "DaemonSet.spec.template.spec has no field hostNetworks"),
        ("True", "'yes'", 36, "DaemonSet.spec.template.spec.hostNetwork is no boolean"),
        ("'name': 'x', 'image'", "'image'", 36, "DaemonSet.spec.template.spec.containers[0].name is missing"),
        ("{'matchLabels': {'a': 'b'}}", "[]", 36, "DaemonSet.spec.selector is no object"),
        ("'hostNetwork'", "'hostUsers'", 24, "DaemonSet.spec.template.spec has no field hostUsers"),
        ("apps/v1", "extensions/v1beta1", 36, "Kubernetes 1.36 has no extensions/v1beta1 DaemonSet"),
    ],
)
def test_a_wrong_object_is_found(old: str, new: str, minor: int, wrong: str) -> None:
    assert wrong_fields(DAEMON_SET, minor) == []
    assert str(DAEMON_SET).count(old) == 1
    (item,) = read(str(DAEMON_SET).replace(old, new).replace("True", "true"))
    assert wrong_fields(item, minor) == [wrong]


@pytest.mark.parametrize(
    ("name", "old", "new", "wrong"),
    [
        ("bootstrap-aws.yaml", "sshKeyName", "sshKey", "AWSMachineTemplate.spec.template.spec has no field sshKey"),
        ("bootstrap-aws.yaml", "      instanceType: INSTANCE_TYPE\n", "", ".spec.instanceType is missing"),
        ("bootstrap-azure.yaml", "diskSizeGB: 128", "diskSizeGB: large", ".spec.osDisk.diskSizeGB is no integer"),
        ("bootstrap-azure.yaml", "criSocket", "socket", "joinConfiguration.nodeRegistration has no field socket"),
    ],
)
def test_a_wrong_bootstrap_config_is_found(name: str, old: str, new: str, wrong: str) -> None:
    text = texts(make(Case()))[name]
    assert old in text
    (found,) = [line for item in read(text.replace(old, new)) for line in wrong_fields(item, 36)]
    assert found.endswith(wrong)


def test_a_policy_of_later_minors_is_no_object_of_earlier_ones() -> None:
    (policy,) = [item for item in objects(CASES["wins-1.34"]) if item["kind"] == "ValidatingAdmissionPolicy"]
    assert wrong_fields(policy, 29) == [f"Kubernetes 1.29 has no {policy['apiVersion']} {policy['kind']}"]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case(network="flannel-vxlan"), "flannel: sig-windows makes no images of flannel for Windows any more"),
        (
            Case(containerd("1.32.13"), network="calico"),
            "kube-proxy: sig-windows publishes the image of kube-proxy only",
        ),
        (Case(("kubernetes.version=1.37.0-rc.1",), network="calico"), "kube-proxy: sig-windows publishes the image"),
        *(
            (Case((*node, *WINS, BRIDGE)), "kube-proxy: sig-windows makes no images for wins any more")
            for node in (docker("1.18.20", "19.03.15"), docker("1.34.2", "28.5.1", cri_dockerd=True))
        ),
    ],
)
def test_an_image_that_nobody_publishes_is_refused(case: Case, reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        make(case)
    (detail,) = refused.value.details
    assert detail.startswith(reason)
    assert f"--image {reason.partition(':')[0]}=" in refused.value.hint


def test_a_published_image_is_that_of_the_version() -> None:
    (image,) = make(Case(network="calico")).images
    assert image.reference == "docker.io/sigwindowstools/kube-proxy:v1.36.4-calico-hostprocess"
    assert image.origin == "kubernetes-sigs/sig-windows-tools at 401ee6f, read 2026-11-19"
    (image,) = make(Case(network="calico", images=KUBE_PROXY)).images
    assert (image.reference, image.origin) == (KUBE_PROXY["kube-proxy"], "--image")


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case(network="calico", images=FLANNEL), "these samples use kube-proxy"),
        (Case(images=FLANNEL), "no sample uses an image"),
        (Case(("cni={plugin: win-bridge}",), network="calico"), "the image has the network plugin win-bridge"),
    ],
)
def test_what_has_no_effect_is_an_error(case: Case, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(case)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case(), f"{UNNAMED} --network calico, flannel-host-gw or flannel-vxlan"),
        (Case((*docker("1.18.20", "19.03.15"), *WINS)), f"{UNNAMED} --network flannel-host-gw or flannel-vxlan"),
        (Case(containerd("1.21.14"), network="calico"), "kube-proxy.yaml: Kubernetes 1.21 does not support them"),
        (Case((*containerd("1.21.14"), "kube_proxy=none"), network="flannel-vxlan"), "flannel.yaml: Kubernetes 1.21"),
        (
            Case((*containerd("1.19.16"), *WINS), network="flannel-vxlan", images=KUBE_PROXY),
            "flannel.yaml: with containerd, the pod",
        ),
        (
            Case((*docker("1.18.20", "19.03.15"), *WINS), network="calico"),
            "kube-proxy.yaml: imagegen does not know how kube-proxy finds the network of calico",
        ),
    ],
)
def test_what_is_left_out_has_a_reason(case: Case, reason: str) -> None:
    samples = make(case)
    assert [text for text in samples.left_out if text.startswith(reason)]
    assert f"* {reason}" in samples.readme
    assert reason.partition(":")[0] not in texts(samples)


def test_an_overlay_without_a_known_range_has_no_kube_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(table("samples")["ranges"], "win-overlay")
    samples = make(CASES["overlay"])
    assert samples.left_out == (
        "kube-proxy.yaml: imagegen does not know how kube-proxy finds the network of win-overlay",
    )
    assert "kube-proxy.yaml" not in texts(samples)


@pytest.mark.parametrize(
    ("plugin", "cloud", "said"),
    [
        ("flannel-routes", "aws", "flanneld, on each node"),
        ("bridge", "aws", "you, in the cloud's network"),
        ("flannel-routes", "azure", "--next-hop-type VirtualAppliance"),
        ("bridge", "azure", "--next-hop-type VirtualAppliance"),
        ("routed", "aws", "Nothing on a node with wincni knows"),
    ],
)
def test_it_is_said_who_sets_routes(plugin: str, cloud: str, said: str) -> None:
    case = CASES[plugin]
    other = {"aws": "azure", "azure": "aws"}[cloud]
    notes = make(Case((*case.sets, f"targets.{other}=null"), case.network, case.images)).notes
    (note,) = [text for text in notes if text.startswith("Who sets the")]
    assert said in note
    assert ("--no-source-dest-check" in note) == (cloud == "aws")


def commands(case: Case) -> list[str]:
    """All commands of the bootstrap configs."""
    found = [item["spec"]["template"]["spec"] for item in objects(case) if item["kind"] == "KubeadmConfigTemplate"]
    return [
        line for spec in found for key in ("preKubeadmCommands", "postKubeadmCommands") for line in spec.get(key, ())
    ]


def test_bootstrap_configs_call_what_is_on_the_image(tmp_path: Path) -> None:
    for name in ("route.ps1", "label.ps1"):
        (tmp_path / name).write_text("exit 0")
    config = tmp_path / "image.yaml"
    config.write_text(BASE.read_text() + "kubeadm_scripts: {pre: [route.ps1, label.ps1], post: [label.ps1]}\n")
    case = Case(("cni={plugin: flannel}", r"kubernetes.install_path=C:\kube"), file=config)
    loaded = load_today(config, *case.sets)
    steps = evaluate_steps(loaded.specs["aws"], loaded.steps)
    placed = {draft.fields["path"] for step in steps for draft in step.drafts if draft.kind == "file"}
    called = [line.partition(" -File ")[2].split()[0] for line in commands(case)]
    assert called == [
        *(rf"C:\kube\{path}" for path in (r"pre-kubeadm\01-route.ps1", r"pre-kubeadm\02-label.ps1")),
        *(rf"C:\kube\{path}" for path in ("set-pod-network.ps1", r"post-kubeadm\01-label.ps1")),
    ] * len(loaded.specs)
    assert set(called) <= placed


@pytest.mark.parametrize(
    ("case", "socket"),
    [
        (Case(), "npipe:////./pipe/containerd-containerd"),
        (CASES["docker-1.14"], "tcp://localhost:2375"),
        (CASES["wins-1.20"], "npipe:////./pipe/docker_engine"),
        (CASES["wins-1.28"], "npipe:////./pipe/cri-dockerd"),
    ],
)
def test_bootstrap_configs_name_the_socket_of_the_runtime(case: Case, socket: str) -> None:
    found = [item["spec"]["template"]["spec"] for item in objects(case) if item["kind"] == "KubeadmConfigTemplate"]
    nodes = [spec["joinConfiguration"]["nodeRegistration"] for spec in found]
    assert {node["criSocket"] for node in nodes} == {socket}
    # kubeadm's own image for Docker may not run on the node's Windows.
    assert {"pod-infra-container-image" in node["kubeletExtraArgs"] for node in nodes} == {
        "engine" in socket or "tcp" in socket
    }


def test_a_network_of_the_cluster_is_named_to_the_service() -> None:
    lines = commands(Case(("kube_proxy=service",), network="flannel-host-gw", images=FLANNEL))
    assert [line.partition("-NetworkName ")[2] for line in lines] == ["cbr0 || exit 1"] * 2


def test_classes_name_the_handlers_of_the_image() -> None:
    loaded = load_today(BASE, *CASES["services"].sets)
    steps = evaluate_steps(loaded.specs["aws"], loaded.steps)
    (toml,) = [text.decode() for step in steps for name, text in step.texts.items() if name.endswith("config.toml")]
    runtimes = tomllib.loads(toml)["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    classes = {item["metadata"]["name"]: item for item in objects(CASES["services"]) if item["kind"] == "RuntimeClass"}
    assert {item["handler"] for item in classes.values()} == runtimes.keys() - {"runhcs-wcow-hypervisor-20348"}
    assert classes["windows-2019-isolated"]["handler"] == "runhcs-wcow-hypervisor-17763"
    nodes = {item["scheduling"]["nodeSelector"]["node.kubernetes.io/windows-build"] for item in classes.values()}
    assert nodes == {"10.0.20348"}


@pytest.mark.parametrize(
    ("network", "plugin"),
    [("flannel-host-gw", "{plugin: flannel, mode: host-gw}"), ("flannel-vxlan", "{plugin: flannel}")],
)
def test_flannel_in_the_cluster_is_configured_as_on_an_image(network: str, plugin: str) -> None:
    (found,) = [
        item["data"]
        for item in objects(Case(network=network, images=FLANNEL))
        if item["kind"] == "ConfigMap" and "10-flannel.conflist" in item["data"]
    ]
    loaded = load_today(BASE, f"cni={plugin}")
    on_image = {
        re.sub("-[0-9a-f]{16}", "", PurePosixPath(name).name): text.decode()
        for step in evaluate_steps(loaded.specs["aws"], loaded.steps)
        for name, text in step.texts.items()
    }
    filled = on_image["10-flannel.conflist"].replace("<CLUSTER_CIDR>", "10.244.0.0/16")
    # On an image the node's own network is an exception too, which the cluster does not know.
    filled = filled.replace("<SERVICE_CIDR>", "10.96.0.0/12").replace(', "<NODE_NETWORK>"', "")
    assert json.loads(found["10-flannel.conflist"]) == json.loads(filled)
    wanted = json.loads(on_image["net-conf.json"].replace("<CLUSTER_CIDR>", "10.244.0.0/16"))
    backend = {"Port": 4789} if network == "flannel-vxlan" else {}
    assert json.loads(found["net-conf.json"]) == {**wanted, "Backend": wanted["Backend"] | backend}


@pytest.mark.parametrize("name", ["overlay", "flannel-overlay", "flannel-by-wins", "bridge", "flannel-routes"])
def test_kube_proxy_has_an_address_of_its_own_only_in_an_overlay(name: str) -> None:
    text = texts(make(CASES[name]))["kube-proxy.yaml"]
    assert (
        ("--source-vip=<SOURCE_VIP>" in text)
        == ("- name: SUBNET_FILE" in text)
        == (name not in ("bridge", "flannel-routes"))
    )


@pytest.mark.parametrize(
    ("name", "gates"),
    [("wins-1.19", "WinDSR=true,WinOverlay=true"), ("wins-1.22", "WinDSR=true"), ("bridge", ""), ("wins-1.34", "")],
)
def test_kube_proxy_has_the_gates_of_its_minor(name: str, gates: str) -> None:
    found = re.findall(r"--feature-gates=(\S+?)[\"' ]", texts(make(CASES[name]))["kube-proxy.yaml"])
    assert found == ([gates] if gates else [])


def test_linux_nodes_get_the_configuration_of_the_image() -> None:
    """Other options of flannel on Linux nodes would make another network."""
    sets = ("cni={plugin: flannel, vni: 5000, port: 4789, mtu: 1400}",)
    loaded = load_today(BASE, *sets)
    steps = evaluate_steps(loaded.specs["aws"], loaded.steps)
    (on_image,) = [text.decode() for step in steps for name, text in step.texts.items() if "/net-conf" in name]
    (patch,) = read(texts(make(Case(sets)))["flannel-config.yaml"])
    assert json.loads(patch["data"]["net-conf.json"]) == json.loads(on_image.replace("<CLUSTER_CIDR>", "10.244.0.0/16"))


def test_wins_may_start_what_pods_let_it_start() -> None:
    case = CASES["flannel-by-wins"]
    loaded = load_today(BASE, *case.sets)
    steps = evaluate_steps(loaded.specs["aws"], loaded.steps)
    (config,) = [text.decode() for step in steps for name, text in step.texts.items() if name == "files/wins/config"]
    started = re.findall(r"process run --path (\S+)", "".join(texts(make(case)).values()))
    assert started == [r"C:\k\flannel\flanneld.exe", r"C:\k\kube-proxy\kube-proxy.exe"]
    assert set(started) <= set(YAML(typ="safe").load(config)["white_list"]["processPaths"])


@pytest.mark.parametrize(
    ("name", "accounts"),
    [
        ("services", {"flannel": ("kube-flannel", "flannel"), "kube-proxy": ("kube-system", "kube-proxy")}),
        ("calico-services", {"kube-proxy": ("kube-system", "kube-proxy"), "calico": ("calico-system", "calico-node")}),
        ("overlay", {}),
    ],
)
def test_services_of_the_node_have_accounts(name: str, accounts: dict[str, tuple[str, str]]) -> None:
    items = objects(CASES[name])
    found = {
        (item["metadata"]["namespace"], item["metadata"]["annotations"]["kubernetes.io/service-account.name"])
        for item in items
        if item["kind"] == "Secret"
    }
    assert found == set(accounts.values())
    files = [
        file
        for item in items
        if item["kind"] == "KubeadmConfigTemplate"
        for file in item["spec"]["template"]["spec"].get("files", ())
    ]
    assert {(file["path"], file["contentFrom"]["secret"]["name"]) for file in files} == {
        (f"/etc/kubernetes/{one}.conf", f"{one}-kubeconfig") for one in accounts
    }


@pytest.mark.parametrize(
    ("case", "is_asked"),
    [
        (Case(("kube_proxy=service",), network="flannel-vxlan", images=FLANNEL), True),
        (Case(("kube_proxy=service",), network="flannel-host-gw", images=FLANNEL), False),
        (CASES["services"], False),
    ],
)
def test_a_service_in_an_overlay_of_the_cluster_needs_an_address_of_each_node(*, case: Case, is_asked: bool) -> None:
    calls = [line for line in commands(case) if "set-pod-network.ps1" in line]
    assert [" -SourceVip SOURCE_VIP || exit 1" in line for line in calls] == [is_asked] * 2
    assert any("SOURCE_VIP" in text for text in make(case).notes) == is_asked


@pytest.mark.parametrize(("sets", "size"), [((), 128), (("targets.azure.disk_size_gb=256",), 256)])
def test_the_disk_of_a_machine_holds_the_image(sets: tuple[str, ...], size: int) -> None:
    (machine,) = [item for item in objects(Case(sets)) if item["kind"] == "AzureMachineTemplate"]
    assert machine["spec"]["template"]["spec"]["osDisk"]["diskSizeGB"] == size
