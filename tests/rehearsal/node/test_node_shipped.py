"""What the shipped steps put on a machine is what the models of kubeadm and kubelet read, and what their tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.node.facts import read_version
from tests.node_support import kubelet_command
from tests.unit.steps.test_node_demands import evaluated, resources

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("kubernetes", "containerd", "runner"),
    [("1.22.17", "1.6.36", "1.23.17"), ("1.33.13", "1.7.35", "1.33.13"), ("1.36.4", "2.3.4", "1.36.4")],
)
def test_the_programs_say_their_version(tmp_path: Path, kubernetes: str, containerd: str, runner: str) -> None:
    machine = stock_windows(tmp_path, release="2022", cloud="aws")
    stand_ins = make_artifacts(evaluated(kubernetes, containerd))
    for program, version in (("kubelet", kubernetes), ("kubeadm", kubernetes), ("kube-log-runner", runner)):
        [data] = [data for url, data in stand_ins.items() if url.endswith(f"/{program}.exe")]
        machine.files.write(rf"C:\Windows\Temp\{program}.exe", data)
        assert read_version(machine.files, rf"C:\Windows\Temp\{program}.exe") == version


@pytest.mark.parametrize(
    ("kubernetes", "containerd"), [("1.22.17", "1.6.36"), ("1.33.13", "1.7.35"), ("1.36.4", "2.3.4")]
)
def test_the_service_has_the_command_of_the_tests(kubernetes: str, containerd: str) -> None:
    [service] = [
        fields
        for kind, fields in resources(kubernetes, containerd)
        if kind == "service" and fields["name"] == "kubelet"
    ]
    assert service["command"].split() == kubelet_command().split()
