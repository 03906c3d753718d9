"""Where each value comes from, and why each step is there."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError
from imagegen.config.yaml import dotted
from imagegen.plan import loading
from imagegen.plan.explain import explain, explanation_json, explanation_lines, is_below, narrow

if TYPE_CHECKING:
    from imagegen.plan.explain import Explanation
    from imagegen.settle.facts import Origin

BASE = """\
windows: {release: "2025"}
kubernetes:
  version: "1.35.0"
  feature_gates: {WindowsHostNetwork: true}
runtime:
  containerd:
    version: "2.3.4"
    registry_mirrors: {"docker.io": [https://mirror.example.com/]}
overrides:
  crictl_url: https://artifacts.example.com/crictl.tar.gz
executables:
- {url: https://artifacts.example.com/a.exe, path: 'C:\\tools\\a.exe'}
"""
CONFIG = """\
extends: base.yaml
name: explained
kubernetes: {version: "1.36.4"}
targets:
  aws: {region: us-east-1, network: {allowed_cidrs: [198.51.100.0/24]}}
  azure:
    location: eastus2
    generation: 1
    gallery: {resource_group: images, name: images, definition: win}
"""
WIDTH = 100


TODAY = datetime.date(2026, 11, 18)


def load(folder: Path, *sets: str) -> loading.Loaded:
    (folder / "base.yaml").write_text(BASE)
    (folder / "config.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return loading.load(loading.ConfigRequest(Path("config.yaml"), TODAY, sets))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> loading.Loaded:
    sets = ("cloudbase_init.user=operator", "kubernetes.feature_gates.OtherGate=false")
    return load(tmp_path_factory.mktemp("explained"), *sets)


@pytest.fixture(scope="module")
def explanation(loaded: loading.Loaded) -> Explanation:
    return explained(loaded)


def explained(loaded: loading.Loaded, *targets: str) -> Explanation:
    return explain([loaded.specs[name] for name in targets or ("aws", "azure")], loaded.steps)


def said(explanation: Explanation, path: str) -> tuple[object, Origin]:
    (value,) = (value for value in explanation.values if dotted(value.path) == path)
    return value.value, value.origin


@pytest.mark.parametrize(
    ("path", "value", "kind", "where"),
    [
        ("name", "explained", "file", "config.yaml:2"),
        ("windows.release", "2025", "file", "base.yaml:1"),
        ("kubernetes.version", "1.36.4", "file", "config.yaml:3"),
        ("kubernetes.feature_gates.WindowsHostNetwork", True, "file", "base.yaml:4"),
        ("kubernetes.feature_gates.OtherGate", False, "set", "--set kubernetes.feature_gates.OtherGate"),
        ('runtime.containerd.registry_mirrors["docker.io"]', ["https://mirror.example.com/"], "file", "base.yaml:8"),
        ("executables[0].path", "C:\\tools\\a.exe", "file", "base.yaml:12"),
        ("cloudbase_init.user", "operator", "set", "--set cloudbase_init.user"),
        ("windows.edition", "core", "default", ""),
        ("ssh", None, "default", ""),
        ("cni.version", None, "default", ""),
        ("kubernetes.pause_image", "registry.k8s.io/pause:3.10.2", "catalogue", "kubernetes 1.36"),
        ("facts.crictl", "1.36.0", "catalogue", "kubernetes 1.36"),
        ("facts.containerd_config_version", 3, "catalogue", "containerd 2.3"),
        (
            "targets.azure.base_image",
            {"offer": "windowsserver", "sku": "2025-datacenter-core-smalldisk"},
            "catalogue",
            "windows 2025",
        ),
    ],
)
def test_each_value_has_its_origin(explanation: Explanation, path: str, value: object, kind: str, where: str) -> None:
    found, origin = said(explanation, path)
    assert (found, origin.kind, origin.where) == (value, kind, where)
    assert bool(origin.source) == bool(origin.read) == (kind == "catalogue")


def test_every_fact_is_explained(loaded: loading.Loaded, explanation: Explanation) -> None:
    paths = [dotted(value.path) for value in explanation.values]
    facts = [spec.facts for spec in loaded.specs.values()]
    for field in dataclasses.fields(facts[0]):
        assert (f"facts.{field.name}" in paths) == any(getattr(of_target, field.name) for of_target in facts)
    assert not [value for value in explanation.values if value.origin.kind == "catalogue" and value.value is None]


def test_what_the_config_says_wins_over_the_catalogue(tmp_path: Path) -> None:
    image = "registry.example.com/pause:3.10.2"
    explanation = explained(load(tmp_path, f"kubernetes.pause_image={image}", "cni.plugin=flannel"), "aws")
    assert said(explanation, "kubernetes.pause_image")[0] == image
    assert said(explanation, "kubernetes.pause_image")[1].kind == "set"
    assert said(explanation, "cni.mode")[0] == "vxlan"
    assert said(explanation, "cni.version")[1].where == "cni flannel"


def test_a_target_says_nothing_of_the_other(loaded: loading.Loaded) -> None:
    paths = [dotted(value.path) for value in explained(loaded, "aws").values]
    assert "targets.aws.region" in paths
    assert "cloudbase_init.plugins.aws" in paths
    assert not [path for path in paths if "azure" in path]


def test_steps_say_why_and_what_they_read(loaded: loading.Loaded, explanation: Explanation) -> None:
    steps = {step.name: step for step in explanation.steps}
    assert set(steps) == {item.name for item in loaded.steps.values() if item.meta.when is None} | {
        "containerd",
        "executables",
    }
    assert {step.targets for step in steps.values()} == {("aws", "azure")}
    assert steps["kubernetes"].because == "always"
    assert steps["containerd"].because == loaded.steps["containerd"].meta.when
    read = {name: [dotted(value.path) for value in step.values] for name, step in steps.items()}
    assert {"kubernetes.version", "facts.crictl", "overrides.crictl_url"} <= set(read["kubernetes"])
    assert {"runtime.containerd.version", "kubernetes.pause_image"} <= set(read["containerd"])
    assert {"cloudbase_init.user", "cloudbase_init.plugins.azure"} <= set(read["cloudbase-init"])
    assert "kubernetes.version" not in read["cloudbase-init"]


def test_whatever_a_step_reads_has_a_value(explanation: Explanation) -> None:
    paths = [dotted(value.path) for value in explanation.values]
    for step in explanation.steps:
        for read in [
            read for read in step.reads if read not in ("target", "rotated_logs") and not read.startswith("paths")
        ]:
            assert any(is_below(path, read) or is_below(read, path) for path in paths), read


@pytest.mark.parametrize(
    ("asked", "first", "count"),
    [
        ("kubernetes.version", "kubernetes.version", 1),
        ("runtime.containerd", "runtime.containerd.version", 6),
        ("ssh.port", "ssh", 1),
        ("executables[0]", "executables[0].url", 3),
        ("targets.aws.publish.regions[0]", "targets.aws.publish.regions", 1),
        ("facts", "facts.windows_build", 27),
    ],
)
def test_path_narrows(explanation: Explanation, asked: str, first: str, count: int) -> None:
    found = narrow(explanation, asked)
    assert dotted(found.values[0].path) == first
    assert (len(found.values), found.steps) == (count, ())


def test_steps_are_a_path_too(explanation: Explanation) -> None:
    assert narrow(explanation, "steps").steps == explanation.steps
    assert [step.name for step in narrow(explanation, "steps.system").steps] == ["system"]
    assert narrow(explanation, "steps.system").values == ()


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("kubernetes.versoin", 'did you mean "kubernetes.version"?'),
        ("kubernets", 'did you mean "kubernetes"?'),
        ("steps.sistem", 'did you mean "steps.system"?'),
        ("zzz", "known: name, windows, kubernetes,"),
        ("", "known: name, windows, kubernetes,"),
    ],
)
def test_unknown_path_names_the_nearest(explanation: Explanation, asked: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        narrow(explanation, asked)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("width", [WIDTH, 60])
def test_text_is_readable(explanation: Explanation, width: int) -> None:
    text = "\n".join(explanation_lines(explanation, width))
    for value in explanation.values:
        assert str(value.path[-1]) in text
    assert "--set cloudbase_init.user" in text
    assert "catalogue: kubernetes 1.36 [1]" in text
    assert "\n[1] kubernetes/website" in text
    assert "in the plan always" in text
    assert [line for line in text.splitlines() if len(line) > width] == []


def test_one_value_is_described(explanation: Explanation) -> None:
    text = "\n".join(explanation_lines(narrow(explanation, "kubernetes.install_path"), WIDTH))
    assert text.endswith("\n  The folder of kubelet, kubeadm, kubectl and crictl. Its path has no spaces.")


def test_json_carries_the_same(explanation: Explanation) -> None:
    read = json.loads(json.dumps(explanation_json(explanation)))
    assert [item["path"] for item in read["values"]] == [dotted(value.path) for value in explanation.values]
    assert read["targets"] == ["aws", "azure"]
    (step,) = (step for step in read["steps"] if step["name"] == "kubernetes")
    assert step["values"]["kubernetes.version"] == "1.36.4"
