"""`kubeadm join` is taken as run: what it leaves for each minor, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.catalog.facts import numbers, table
from imagegen.rehearsal.boot.model import Ended, Process, UnknownCommandError
from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.node.facts import is_within, read_facts
from imagegen.rehearsal.node.join import make_kubeadm
from imagegen.rehearsal.node.kubelet import find_refusals

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine

PIPE = "npipe:////./pipe/containerd-containerd"
CONFIG = r"C:\join.yaml"
FLAGS = r"C:\var\lib\kubelet\kubeadm-flags.env"
TEXT = f"""---
kind: ClusterConfiguration
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  criSocket: {PIPE}
  kubeletExtraArgs:
  - name: node-ip
    value: 10.0.0.7
  name: worker-7
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = stock_windows(tmp_path, release="2022", cloud="aws")
    made.files.make_folder(r"C:\k")
    for name in ("kubeadm", "kubelet"):
        made.files.write(rf"C:\k\{name}.exe", f"MZ a stand-in for {name}.exe 1.36.4, made for a rehearsal".encode())
    made.files.write(r"C:\k\arguments.txt", b"--v=4\n")
    command = r"C:\k\kubelet.exe --windows-service -ArgumentsFile C:\k\arguments.txt"
    made.services.create("kubelet", command, "kubelet", 3)
    return made


def join(machine: Machine, text: str = TEXT, *words: str) -> tuple[Ended, dict[str, str]]:
    nodes: dict[str, str] = {}
    machine.files.write(CONFIG, text.encode())
    arguments = (r"C:\k\kubeadm.exe", *(words or ("join", "--config", "/join.yaml", "--v", "5")))
    return make_kubeadm(nodes, [PIPE], [])(Process(machine, arguments)), nodes


def test_a_join_leaves_the_files_of_its_minor_and_starts_kubelet(machine: Machine) -> None:
    ended, nodes = join(machine)
    assert (ended.exit_code, nodes) == (0, {"worker-7": "10.0.0.7"})
    assert machine.services.is_running("kubelet")
    left = {path for path in read_facts("join")["files"] if machine.files.is_file(path)}
    assert left == {*read_facts("join")["files"]} - {r"C:\etc\kubernetes\bootstrap-kubelet.conf"}
    assert machine.files.read(FLAGS) == b'KUBELET_KUBEADM_ARGS="--hostname-override=worker-7 --node-ip=10.0.0.7"\n'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("v1beta4", "v1beta2", 'no kind "JoinConfiguration" is registered for version "kubeadm.k8s.io/v1beta2"'),
        ("v1beta4", "v1beta9", "kubeadm.k8s.io/v1beta9"),
        ("kubeadm.k8s.io/", "other/", 'version "other/v1beta4"'),
        ("JoinConfiguration", "Other", "has 0 documents of kind JoinConfiguration"),
        ("kind: ClusterConfiguration", "kind: JoinConfiguration", "has 2 documents of kind JoinConfiguration"),
        ("worker-7", "'{{ v1.local_hostname }}'", "nodeRegistration.name: Invalid value"),
        ("containerd-containerd", "other", "no container runtime of the image answers at criSocket"),
        ("name: node-ip", "name: pod-cidrs", "kubelet does not run: failed to parse kubelet flag: unknown flag: --pod"),
        ("kind: Cluster", "kind: [", "error converting YAML to JSON"),
    ],
)
def test_a_join_is_refused_by_name(machine: Machine, old: str, new: str, said: str) -> None:
    assert old in TEXT
    ended, nodes = join(machine, TEXT.replace(old, new))
    assert (ended.exit_code, nodes) == (1, {})
    assert said in ended.output


def test_a_kubelet_that_cannot_start_fails_the_join(machine: Machine) -> None:
    machine.files.remove(r"C:\k\kubelet.exe")
    ended, nodes = join(machine)
    assert (ended.exit_code, nodes) == (1, {})
    assert r"cannot find its program C:\k\kubelet.exe" in ended.output


def test_without_a_name_the_machines_own_counts(machine: Machine) -> None:
    _, nodes = join(machine, TEXT.replace("  name: worker-7\n", ""))
    assert list(nodes) == [machine.host_name.lower()]


def test_another_command_is_refused_by_name(machine: Machine) -> None:
    with pytest.raises(UnknownCommandError, match="'kubeadm reset --force'"):
        join(machine, TEXT, "reset", "--force")


def test_every_minor_reads_a_configuration() -> None:
    rows = read_facts("join")["api_versions"].values()
    for minor in table("kubernetes")["minors"]:
        assert any(is_within(minor, row["first"], row["last"]) for row in rows), minor


@pytest.mark.parametrize(
    ("word", "minor", "said"),
    [
        ("--v=4", "1.36", ""),
        ("--container-runtime=remote", "1.26", ""),
        ("--container-runtime=remote", "1.27", "unknown flag: --container-runtime"),
        ("-v=4", "1.36", "unknown flag: --v"),
        ("--feature-gates=AllAlpha=true,Other=false", "1.36", "unknown feature gate: Other"),
        ("--feature-gates=HyperVContainer=true", "1.20", ""),
        ("--feature-gates=HyperVContainer=true", "1.21", "unknown feature gate: HyperVContainer"),
    ],
)
def test_the_flags_and_gates_of_a_minor(word: str, minor: str, said: str) -> None:
    found = list(find_refusals([word], minor))
    assert [one.endswith(said) for one in found] == ([True] if said else [])


def test_the_rows_of_flags_and_gates_are_ranges_of_minors() -> None:
    for rows in (read_facts("kubelet")["flags"], read_facts("kubelet")["gates"]):
        for name, (first, last) in rows.items():
            assert not first or not last or numbers(first) <= numbers(last), name
