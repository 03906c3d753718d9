"""The shipped steps: in their order, with nothing in their folders and metadata that nothing uses."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base import contents
from imagegen.base.errors import ConfigError
from imagegen.config.model import ImageConfig
from imagegen.config.own_files import GivenCertificate, OwnFile
from imagegen.config.yaml import Document, dotted
from imagegen.plan.context import evaluate_steps, step_context
from imagegen.providers.registry import PROVIDERS
from imagegen.settle.spec import settle
from imagegen.steps.evaluate import EvaluatedStep, applies, evaluate_step
from imagegen.steps.kinds import ENGINE_MODULE, KINDS, Environment, File
from imagegen.steps.model import load_steps
from imagegen.steps.release_record import SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.config.yaml import YamlPath
    from imagegen.settle.spec import Spec
    from imagegen.steps.model import Step

STEPS = load_steps(contents.SHIPPED.step_roots)
GALLERY = {"resource_group": "images", "name": "images", "definition": "windows"}
PLAIN: dict[str, Any] = {
    "name": "plain",
    "windows": {"release": "2022"},
    "kubernetes": {"version": "1.36.4"},
    "runtime": {"containerd": {"version": "2.3.4"}},
    "targets": {"aws": {"region": "us-east-1"}, "azure": {"location": "westeurope", "gallery": GALLERY}},
}
PROVIDERS_ASKED = [
    {
        "name": "one",
        "url": "https://artifacts.example.com/one.exe",
        "match_images": ["*.one.example.com"],
        "args": ["C:\\k\\one.json"],
        "env": {"REGION": "eu"},
    },
    {"name": "two", "url": "https://artifacts.example.com/two.exe", "match_images": ["two.example.com"], "cache": "1h"},
]
UPDATES = {"categories": ["security"], "kbs": ["KB5066782"], "exclude": ["KB5034439"]}
# Everything that the steps make of a config beyond what they always make.
ASKED: dict[str, Any] = {
    "windows": {
        "time_zone": "W. Europe Standard Time_dstoff",
        "hyper_v": "isolation",
        "updates": UPDATES,
        "trusted_roots": ["root.pem"],
        "container_images": ["mcr.microsoft.com/windows/nanoserver:ltsc2022"],
    },
    "images": ["registry.example.com/a:1", "registry.example.com/pause:3.10.2"],
    "debug_tools": True,
    "image_tarballs": [{"name": "registry.example.com/b:1", "url": "https://artifacts.example.com/1.36.4/b.tar.gz"}],
    "host_names": {"dns_suffix": "nodes.example.com"},
    "kubernetes": {
        "install_path": "C:\\opt\\kube",
        "source": "node-tarball",
        "service_manager": "nssm",
        "feature_gates": {"OneGate": True, "OtherGate": False},
        "kubelet_flags": {"node-labels": 'a=b,c="d e"', "max-pods": "60"},
        "pause_image": "registry.example.com/pause:3.10.2",
    },
    "runtime": {
        "containerd": {
            "version": "2.3.4",
            "discard_unpacked_layers": False,
            "image_pull_progress_timeout": "10m",
            "max_concurrent_downloads": 5,
            "registry_mirrors": {
                "registry.example.com:5000": ["https://one.example.com/team/"],
                "docker.io": ["https://two.example.com/", "https://one.example.com:8443/a'b\"c\\d"],
            },
            "settings": "[debug]\nlevel = 'info' # not {{ a }} template",
        }
    },
    "cloudbase_init": {
        "logging": {"serial_port": "COM1,115200,N,8"},
        "real_time_clock_utc": True,
    },
    "csi_proxy": {},
    "kube_proxy": "service",
    "wins": {"version": "0.4.11"},
    "gmsa": {},
    "ssh": {"source": "zip", "port": 2222},
    "credential_providers": PROVIDERS_ASKED,
    "proxy": {"http": "http://a.example.com:3128", "https": "http://b.example.com:3128", "no_proxy": [".svc", "::1"]},
    "executables": [
        {"url": "https://one.example.com/a", "path": "C:\\tools\\a.exe"},
        {"url": "https://one.example.com/b", "path": "C:\\Tools\\b.exe", "sha256": "b" * 64},
        {"url": "https://one.example.com/c", "path": "C:\\opt\\Kube\\c.exe"},
    ],
    "kubeadm_scripts": {"pre": ["a.ps1", "b.ps1"], "post": ["c.ps1"]},
    "scripts": ["d.ps1", {"file": "e.ps1", "arguments": ["-A", "1"], "good_exit_codes": [0, 5], "timeout_s": 60}],
}

# The same with Docker: kubelet asks cri-dockerd, or Docker itself.
DOCKER: tuple[dict[str, Any], ...] = (
    {
        **ASKED,
        "runtime": {
            "containerd": None,
            "docker": {"version": "29.0.4", "cri_dockerd": "0.3.13"},
            "fake_host_network": True,
        },
    },
    {
        **ASKED,
        "kubernetes": {**ASKED["kubernetes"], "version": "1.22.17", "service_manager": "windows"},
        "runtime": {"containerd": None, "docker": {"version": "20.10.9"}},
    },
)

# Files of the config, by step.
OWN_FILES = {
    "kubeadm-scripts": ("a.ps1", "b.ps1", "c.ps1"),
    "scripts": ("d.ps1", "e.ps1"),
    "trust": ("root.cer",),
}


def _config(asked: Mapping[str, Any]) -> ImageConfig:
    sections = {
        name: {**PLAIN.get(name, {}), **section} if isinstance(section, dict) else section
        for name, section in asked.items()
    }
    return ImageConfig.model_validate({**PLAIN, **sections})


def _evaluated(asked: Mapping[str, Any], target: str) -> tuple[EvaluatedStep, ...]:
    return evaluate_steps(_spec(asked, target), STEPS)


def _spec(asked: Mapping[str, Any], target: str) -> Spec:
    config = _config(asked)
    files = {dotted(path): OwnFile(name, name.encode()) for path, name in config.own_files().items()}
    roots = [GivenCertificate("CN=Root", "A" * 40, OwnFile("root.cer", b"DER")) for _ in config.windows.trusted_roots]
    return settle(config, Document("config.yaml", {}, {}), target, files, roots)


EVALUATED = {target: _evaluated({}, target) for target in PROVIDERS}


@functools.cache
def _rich(target: str) -> tuple[EvaluatedStep, ...]:
    return _evaluated(ASKED, target)


# An image has one network plugin.
NETWORKS: tuple[dict[str, Any], ...] = (
    {"plugin": "win-bridge"},
    {"plugin": "win-overlay", "vni": 5000},
    {"plugin": "flannel", "port": 4789, "mtu": 1400},
    {"plugin": "azure", "version": "1.6.21"},
    {"plugin": "azure", "version": "1.6.21", "policy": "calico"},
    {"plugin": "calico", "mode": "vxlan"},
    {"plugin": "calico"},
    {"plugin": "ovn-kubernetes", "version": "1.3.0", "port": 9898},
    {"plugin": "wincni"},
)


def _everything() -> Iterator[EvaluatedStep]:
    for target in PROVIDERS:
        yield from EVALUATED[target]
        yield from _rich(target)
        yield from _evaluated({"ssh": {}}, target)
        for asked in DOCKER:
            yield from _evaluated(asked, target)
    for network in NETWORKS:
        yield from _evaluated({"cni": network, "kube_proxy": "service"}, "aws")


def _changed(section: str, asked: Mapping[str, Any]) -> tuple[set[str], dict[str, str]]:
    """What a config that asks for this alone adds to the plain one: labels of resources, and texts that differ."""
    plain, other = EVALUATED["aws"], _evaluated({section: asked}, "aws")
    before = [(draft.kind, draft.fields) for step in plain for draft in step.drafts]
    labels = {
        str(draft.fields.get("path") or draft.fields.get("name"))
        for step in other
        for draft in step.drafts
        if (draft.kind, draft.fields) not in before
    }
    old = {path: text for step in plain for path, text in step.texts.items()}
    texts = {path: text for step in other for path, text in step.texts.items() if old.get(path) != text}
    return labels, {path: text.decode() for path, text in texts.items()}


def _leaves(value: Any, path: YamlPath = ()) -> Iterator[YamlPath]:  # noqa: ANN401 - any part of a context
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    else:
        yield path


def _read_or_none(context: Any, read: str) -> Any:  # noqa: ANN401 - any part of a context
    """None for what is in a section that the config omits."""
    return functools.reduce(lambda value, name: value and value[name], read.split("."), context)


SPECS = (
    *(_spec(asked, "aws") for asked in (ASKED, *DOCKER)),
    *(_spec({**ASKED, "cni": network}, "aws") for network in NETWORKS),
    *(_spec({"cni": network, "kube_proxy": "service"}, "aws") for network in NETWORKS),
    _spec({"cni": {"plugin": "flannel"}, "kube_proxy": "service"}, "aws"),
    _spec({"kubernetes": {"version": "1.32.13"}, "kube_proxy": "service"}, "aws"),
    _spec({"ssh": {}}, "aws"),
)
CONTEXTS = tuple(step_context(spec) for spec in SPECS)
READS = list(
    dict.fromkeys(
        (name, read, leaf)
        for context in CONTEXTS
        for name, step in STEPS.items()
        if applies(step, context)
        for read in step.meta.reads
        for leaf in _leaves(_read_or_none(context, read))
    )
)


@pytest.mark.parametrize(("name", "read", "leaf"), READS)
def test_step_uses_all_that_it_reads(name: str, read: str, leaf: YamlPath) -> None:
    assert any(
        _uses(spec, context, STEPS[name], read, leaf)
        for spec, context in zip(SPECS, CONTEXTS, strict=True)
        if applies(STEPS[name], context)
    )


def _uses(spec: Spec, asked: Any, step: Step, read: str, leaf: YamlPath) -> bool:  # noqa: ANN401 - a context
    context = copy.deepcopy(asked)
    if read in (step.meta.when or ""):
        return True
    whole = evaluate_step(step, context, {}, spec.own_files)
    if leaf:
        *parents, last = leaf
        values = functools.reduce(lambda value, key: (value or {}).get(key), parents, _read_or_none(context, read))
        if not values or last not in values:
            return False
        del values[last]
    else:
        fewer = [item for item in step.meta.reads if item != read]
        step = dataclasses.replace(step, meta=step.meta.model_copy(update={"reads": fewer}))
    try:
        less = evaluate_step(step, context, {}, spec.own_files)
    except ConfigError:
        return True  # it cannot do without
    return (less.drafts, less.texts, less.requests) != (whole.drafts, whole.texts, whole.requests)


@pytest.mark.parametrize("name", STEPS)
def test_everything_in_a_steps_folder_is_used(name: str) -> None:
    drafts = [draft for item in _everything() if item.step.name == name for draft in item.drafts]
    sources = {draft.fields["source"] for draft in drafts if draft.fields.get("source")}
    own = {f"files/{name}/{file}" for file in OWN_FILES.get(name, ())}
    made = {"release-record": {SOURCE}, "kubernetes": {ENGINE_MODULE}}.get(name, set())
    bundled = (
        own
        | made
        | {f"files/{name}/{path.removesuffix('.j2')}" for path in (*STEPS[name].templates, *STEPS[name].files)}
    )
    assert {re.sub(r"-[0-9a-f]{16}(\.[a-z0-9]+)$", r"\1", source) for source in sources} == bundled
    used = {draft.fields["artifact"] for draft in drafts if draft.fields.get("artifact")}
    assert {re.sub(r"-[0-9]+$", "", artifact) for artifact in used} == set(STEPS[name].meta.artifacts)


def test_every_kind_of_resource_is_used() -> None:
    assert {draft.kind for item in _everything() for draft in item.drafts} == set(KINDS)


@pytest.mark.parametrize("name", STEPS)
def test_downloads_are_from_https_and_name_their_version(name: str) -> None:
    for item in EVALUATED["aws"]:
        if item.step.name == name:
            for request in item.requests.values():
                assert request.url.startswith("https://")
                assert any(version in request.url for version in ("1.36.4", "2.3.4", "1.1.8", "1.36.0")), request.url


def test_why_each_step_is_in_the_plan() -> None:
    assert {item.step.name: item.because for item in EVALUATED["aws"]} == {
        "system": "always",
        "containerd": "runtime.containerd",
        "kubernetes": "always",
        "cloudbase-init": "always",
        "release-record": "always",
    }


def test_two_spellings_of_a_map_are_one_plan() -> None:
    other = copy.deepcopy(ASKED)
    for section, name in (("kubernetes", "feature_gates"), ("kubernetes", "kubelet_flags")):
        other[section][name] = dict(reversed(ASKED[section][name].items()))
    mirrors = ASKED["runtime"]["containerd"]["registry_mirrors"]
    other["runtime"]["containerd"]["registry_mirrors"] = dict(reversed(mirrors.items()))
    assert [(item.drafts, item.texts) for item in _evaluated(other, "aws")] == [
        (item.drafts, item.texts) for item in _rich("aws")
    ]


ARGUMENTS = "C:\\k\\kubelet-arguments.txt"


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({"feature_gates": {"Zebra": True, "Alpha": False}}, ["--feature-gates=Alpha=false,Zebra=true"]),
        ({"kubelet_flags": {"max-pods": "60", "cpu-cfs": " 'a' \"b"}}, ["--cpu-cfs= 'a' \"b", "--max-pods=60"]),
        (
            {"feature_gates": {"Zebra": True}, "kubelet_flags": {"max-pods": "60"}},
            ["--feature-gates=Zebra=true", "--max-pods=60"],
        ),
    ],
)
def test_kubelets_arguments(asked: dict[str, Any], lines: list[str]) -> None:
    labels, texts = _changed("kubernetes", asked)
    assert labels == {ARGUMENTS}
    told = ["--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS", *lines]
    assert texts == {"files/kubernetes/kubelet-arguments.txt": "".join(f"{line}\n" for line in told)}


def test_kubelets_command_names_everything() -> None:
    commands = {
        named: next(draft.fields["command"] for draft in item.drafts if draft.fields.get("name") == "kubelet")
        for named, evaluated in (("plain", EVALUATED["aws"]), ("rich", _rich("aws")))
        for item in evaluated
        if item.step.name == "kubernetes"
    }
    plain = (
        r"C:\k\kube-log-runner.exe --log-file=C:\var\log\kubelet\kubelet.log"
        r" C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass"
        r" -File C:\k\start-kubelet.ps1 -Kubelet C:\k\kubelet.exe"
        r" -StateFolder C:\var\lib\kubelet -ConfigFolder C:\etc\kubernetes"
        r" -ArgumentsFile C:\k\kubelet-arguments.txt"
    )
    assert commands == {"plain": plain, "rich": r"C:\opt\kube\nssm.exe"}
    values = {
        draft.fields["name"]: draft.fields["data"]
        for item in _rich("aws")
        for draft in item.drafts
        if draft.kind == "registry" and draft.fields["key"].endswith(r"\Services\kubelet\Parameters")
    }
    program, _, rest = plain.removeprefix(plain.partition(" C:\\Windows")[0] + " ").partition(" ")
    log = r"C:\var\log\kubelet\kubelet.log"
    assert values == {
        "Application": program,
        "AppDirectory": r"C:\opt\kube",
        "AppParameters": rest.replace(r"C:\k", r"C:\opt\kube"),
        **{"AppStdout": log, "AppStderr": log, "AppRestartDelay": 5000, "AppThrottle": 0, "AppNoConsole": 1},
        **{"AppRotateFiles": 1, "AppRotateOnline": 1, "AppRotateBytes": 104857600},
    }


@pytest.mark.parametrize(
    ("asked", "variables"),
    [
        ({"http": "http://a.example.com"}, {"HTTP_PROXY": "http://a.example.com"}),
        (
            {"https": "http://b.example.com:3128", "no_proxy": [".svc", "10.0.0.0/8"]},
            {"HTTPS_PROXY": "http://b.example.com:3128", "NO_PROXY": ".svc,10.0.0.0/8"},
        ),
    ],
)
def test_proxy_is_the_machines(asked: dict[str, Any], variables: dict[str, str]) -> None:
    evaluated = _evaluated({"proxy": asked}, "azure")
    system = next(item for item in evaluated if item.step.name == "system")
    found = [Environment.model_validate(draft.fields) for draft in system.drafts if draft.kind == "environment"]
    assert {item.name: item.value for item in found} == variables
    assert evaluated[0] is system, "a service sees what there was when Windows started"


@pytest.mark.parametrize("version", ["2.3.4", "1.7.33"])
def test_containerd_is_told_what_is_asked(version: str) -> None:
    asked = copy.deepcopy(ASKED)
    asked["runtime"]["containerd"]["version"] = version
    asked["kubernetes"]["version"] = "1.34.2"
    step = next(item for item in _evaluated(asked, "aws") if item.step.name == "containerd")
    files = {draft.fields["path"]: File.model_validate(draft.fields) for draft in step.drafts if draft.kind == "file"}
    home = "C:\\Program Files\\containerd"
    read = {
        path.removeprefix(f"{home}\\"): tomllib.loads(step.texts[str(file.source)].decode())
        for path, file in files.items()
    }
    plugins = read.pop("config.toml")["plugins"]
    can = {"capabilities": ["pull", "resolve"]}
    assert read == {
        "certs.d\\docker.io\\hosts.toml": {
            "host": {"https://two.example.com": can, "https://one.example.com:8443/a'b\"c\\d": can}
        },
        "certs.d\\registry.example.com_5000_\\hosts.toml": {"host": {"https://one.example.com/team": can}},
        "conf.d\\operator.toml": {"version": 2 if version.startswith("1.") else 3, "debug": {"level": "info"}},
    }
    assert list(read["certs.d\\docker.io\\hosts.toml"]["host"]) == [
        "https://two.example.com",
        "https://one.example.com:8443/a'b\"c\\d",
    ], "in the order asked for"
    images = plugins["io.containerd.grpc.v1.cri" if version.startswith("1.") else "io.containerd.cri.v1.images"]
    assert images["registry"] == {"config_path": f"{home}\\certs.d"}
    assert images["image_pull_progress_timeout"] == "10m"
    assert images["max_concurrent_downloads"] == 5
    layers = images["containerd"] if version.startswith("1.") else images
    assert layers["discard_unpacked_layers"] is False
    folders = {draft.fields["path"] for draft in step.drafts if draft.kind == "directory"}
    assert {path.rpartition("\\")[0] for path in files} <= {home, *folders}


@pytest.mark.parametrize(
    ("service", "network", "values"),
    [
        (
            "CalicoNode",
            {"plugin": "calico", "mode": "vxlan"},
            {
                "Application": r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe",
                "AppDirectory": r"C:\CalicoWindows",
                "AppParameters": "-NoProfile -NonInteractive -ExecutionPolicy Bypass -File "
                r"C:\CalicoWindows\node\node-service.ps1",
                **dict.fromkeys(("AppStdout", "AppStderr"), r"C:\var\log\calico\calico-node.log"),
            },
        ),
        (
            "hybrid-overlay-node",
            {"plugin": "ovn-kubernetes", "version": "1.3.0"},
            {
                **{"Application": r"C:\k\hybrid-overlay-node.exe", "AppDirectory": r"C:\k"},
                **dict.fromkeys(("AppStdout", "AppStderr"), r"C:\var\log\hybrid-overlay\hybrid-overlay-node.log"),
            },
        ),
    ],
)
def test_services_of_networks_run_under_nssm(service: str, network: dict[str, Any], values: dict[str, str]) -> None:
    """It restarts and logs what it starts. What only a joined node knows it is told later."""
    drafts = [draft for step in _evaluated({"cni": network, "kube_proxy": "none"}, "aws") for draft in step.drafts]
    key = rf"HKLM:\SYSTEM\CurrentControlSet\Services\{service}\Parameters"
    found = {draft.fields["name"]: draft.fields["data"] for draft in drafts if draft.fields.get("key") == key}
    rotation = {"AppRotateFiles": 1, "AppRotateOnline": 1, "AppRotateBytes": 104857600}
    assert found == {**values, **rotation, "AppRestartDelay": 5000, "AppThrottle": 0, "AppNoConsole": 1}
    (fields,) = [draft.fields for draft in drafts if draft.kind == "service" and draft.fields["name"] == service]
    assert (fields["command"], fields["start"]) == (r"C:\k\nssm.exe", "manual")


@pytest.mark.parametrize(
    ("version", "registry"), [("3.27.0", "docker.io"), ("3.30.3", "docker.io"), ("3.31.0", "quay.io")]
)
def test_calicos_images_are_those_of_its_pods(version: str, registry: str) -> None:
    names = [f"{registry}/calico/{name}:v{version}" for name in ("cni-windows", "node-windows")]
    asked = {"cni": {"plugin": "calico", "version": version}}
    assert _spec(asked, "aws").facts.cni_images == names
    short = names[0].removeprefix("docker.io/")
    tarball = {"name": short, "url": "https://artifacts.example.com/calico.tar"}
    base = {"windows": {"release": "2022", "container_images": names[:1]}}
    for listed in ({"images": names[:1]}, {"images": [short]}, {"image_tarballs": [tarball]}, base):
        assert _spec({**asked, **listed}, "aws").facts.cni_images == names[1:]


def test_flanneld_runs_under_nssm() -> None:
    step = next(item for item in _evaluated({"cni": {"plugin": "flannel"}}, "aws") if item.step.name == "flannel")
    values = {draft.fields["name"]: draft.fields["data"] for draft in step.drafts if draft.kind == "registry"}
    log = r"C:\var\log\flannel\flanneld.log"
    assert values == {
        **{"Application": r"C:\k\flanneld.exe", "AppDirectory": r"C:\k", "AppStdout": log, "AppStderr": log},
        "AppParameters": r"--kube-subnet-mgr --kubeconfig-file=C:\etc\kubernetes\flannel.conf",
        **{"AppRestartDelay": 5000, "AppThrottle": 0, "AppNoConsole": 1},
        **{"AppRotateFiles": 1, "AppRotateOnline": 1, "AppRotateBytes": 104857600},
    }
    (service,) = [draft.fields for draft in step.drafts if draft.kind == "service"]
    assert (service["command"], service["start"]) == (r"C:\k\nssm.exe", "manual")


@pytest.mark.parametrize(
    ("asked", "backend"),
    [
        ({}, {"Type": "vxlan", "VNI": 4096}),
        ({"vni": 5000, "port": 4789, "mtu": 1400}, {"Type": "vxlan", "VNI": 5000, "Port": 4789, "MTU": 1400}),
        ({"mode": "host-gw", "mtu": 1400}, {"Type": "host-gw", "MTU": 1400}),
    ],
)
def test_flannels_backend(asked: dict[str, Any], backend: dict[str, Any]) -> None:
    step = next(item for item in _evaluated({"cni": {"plugin": "flannel", **asked}}, "aws") if item.step.name == "cni")
    (text,) = [text for path, text in step.texts.items() if "net-conf" in path]
    assert json.loads(text) == {"Network": "<CLUSTER_CIDR>", "Backend": backend}
