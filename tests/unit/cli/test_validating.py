"""What `validate` tells of configs that extend each other: each thing once, at the file that says it, and counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

# A warning stands in line 5.
PARENT = """\
name: parent
windows: {release: "2022"}
kubernetes: {version: "1.36.4"}
runtime: {containerd: {version: "2.3.4"}}
targets: {aws: {region: us-east-1, network: {allowed_cidrs: [0.0.0.0/0]}}}
"""
CHILD = """\
extends: parent.yaml
name: child
targets:
  aws:
    disk: {size_gb: 100}
"""
WARNED = "targets.aws.network.allowed_cidrs[0]: warning: "


@pytest.fixture(autouse=True)
def _family(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text(PARENT)
    (tmp_path / "child.yaml").write_text(CHILD)
    monkeypatch.chdir(tmp_path)


def test_a_parents_warning_names_the_parent_and_is_told_once(run: Run) -> None:
    code, out, err = run("validate", "child.yaml", "parent.yaml", "child.yaml")
    assert code == 0
    assert err.count("warning") == 1
    assert err.startswith(f"parent.yaml:5: {WARNED}")
    assert out.endswith("3 configs: 3 ok, 0 cannot be built yet, 0 wrong; 1 warning\n")


def test_annotations_are_told_once_and_machines_are_told_all(run: Run) -> None:
    _, out, _ = run("validate", "child.yaml", "parent.yaml", "--format", "github")
    assert out.count("::warning") == 1
    assert out.startswith("::warning file=parent.yaml,line=5,")
    _, out, _ = run("validate", "child.yaml", "parent.yaml", "--format", "json")
    assert [len(config["problems"]) for config in json.loads(out)["configs"]] == [1, 1]


def test_what_refuses_a_config_is_told_of_each(run: Run, tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text(PARENT.replace("us-east-1", "nowhere"))
    _, _, err = run("validate", "child.yaml", "parent.yaml")
    assert err.count("parent.yaml:5: targets.aws.region: ") == 2


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ("kube_proxy: x\n", "1 problem and 1 warning"),
        ("kube_proxy: x\nallow_eol: true\n", "1 problem and 2 warnings"),
        ("kube_proxy: x\nimages: 1\n", "2 problems and 1 warning"),
    ],
)
def test_the_heading_counts_what_is_below_it(run: Run, tmp_path: Path, more: str, counts: str) -> None:
    (tmp_path / "child.yaml").write_text(CHILD + more)
    _, _, err = run("validate", "child.yaml")
    heading, *entries = err.splitlines()
    assert heading == f"error: child.yaml: {counts}"
    assert len([line for line in entries if "hint: " not in line]) == sum(int(word) for word in counts.split()[::3])
