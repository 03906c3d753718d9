"""The flags that kubeadm writes for kubelet, by minor, and how kubelet's start script reads them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.node.join_config import CONTAINERD, JoinConfiguration
from imagegen.rehearsal.node.kubelet_flags import flags_file
from imagegen.rehearsal.node.start_script import read_parameters, read_script, run_script
from tests.node_support import SCRIPT, TOKEN

if TYPE_CHECKING:
    from pathlib import Path

JOIN = JoinConfiguration(
    name="node-1",
    cri_socket=CONTAINERD,
    taints=({"key": "os", "value": "windows", "effect": "NoSchedule"}, {"key": "new", "effect": "NoExecute"}),
    extra_args=(("cloud-provider", "external"), ("a-first", "1")),
    ignored_errors=frozenset(),
    endpoint="10.0.0.4:6443",
    token=TOKEN,
    tls_token=TOKEN,
    ca_hashes=(),
    ca_path="C:/etc/kubernetes/pki/ca.crt",
    discovery_s=1,
    tls_bootstrap_s=1,
    healthy_s=1,
    api_call_s=1,
)
TAINTS = "--register-with-taints=os=windows:NoSchedule,new:NoExecute"
SOCKET = f"--container-runtime-endpoint={CONTAINERD}"
NAME = "--hostname-override=node-1"
EXTRA = "--cloud-provider=external"


def pause(image: str) -> str:
    return f"--pod-infra-container-image={image}"


@pytest.mark.parametrize(
    ("minor", "line"),
    [
        ("1.14", f"--a-first=1 {EXTRA} --container-runtime=remote {SOCKET} {NAME} {TAINTS}"),
        ("1.20", f'"--a-first=1 {EXTRA} --container-runtime=remote {SOCKET} {NAME} {TAINTS}"'),
        (
            "1.22",
            f'"--a-first=1 {EXTRA} --container-runtime=remote {SOCKET} {NAME} '
            f'{pause("registry.k8s.io/pause:3.5")} {TAINTS}"',
        ),
        ("1.26", f'"--a-first=1 {EXTRA} {SOCKET} {NAME} {pause("registry.k8s.io/pause:3.9")} {TAINTS}"'),
        ("1.29", f'"{SOCKET} {NAME} {pause("registry.k8s.io/pause:3.9")} {TAINTS} {EXTRA} --a-first=1"'),
        ("1.34", f'"{SOCKET} {NAME} {pause("registry.k8s.io/pause:3.10.1")} {TAINTS} {EXTRA} --a-first=1"'),
        ("1.35", f'"{SOCKET} {NAME} {TAINTS} {EXTRA} --a-first=1"'),
    ],
)
def test_each_minor_writes_its_flags(minor: str, line: str) -> None:
    found = flags_file(JOIN, minor, host_name="OTHER", repository="", socket_is_in_config=False)
    assert found.decode() == f"KUBELET_KUBEADM_ARGS={line}\n"


def test_the_socket_is_no_flag_where_it_is_in_the_configuration() -> None:
    found = flags_file(JOIN, "1.34", host_name="OTHER", repository="", socket_is_in_config=True)
    assert b"container-runtime-endpoint" not in found


def test_the_name_is_a_flag_only_where_it_differs_from_the_machines() -> None:
    assert b"hostname-override" not in flags_file(
        JOIN, "1.34", host_name="NODE-1", repository="", socket_is_in_config=True
    )


def test_the_extra_argument_wins_over_the_name() -> None:
    changed = dataclasses.replace(JOIN, extra_args=(("hostname-override", "by-argument"),))
    found = flags_file(changed, "1.34", host_name="OTHER", repository="", socket_is_in_config=True).decode()
    assert "--hostname-override=by-argument" in found
    assert "node-1" not in found


def test_the_repository_of_the_cluster_is_the_one_of_the_pause_image() -> None:
    found = flags_file(JOIN, "1.30", host_name="OTHER", repository="mirror.example/k8s", socket_is_in_config=False)
    assert b"=mirror.example/k8s/pause:3.9 " in found


def test_docker_was_built_in_up_to_1_23() -> None:
    docker = dataclasses.replace(JOIN, cri_socket="npipe:////./pipe/docker_engine")
    old = flags_file(docker, "1.23", host_name="OTHER", repository="", socket_is_in_config=False).decode()
    assert "--network-plugin=cni" in old
    assert "container-runtime" not in old
    assert b"network-plugin" not in flags_file(
        docker, "1.24", host_name="OTHER", repository="", socket_is_in_config=False
    )


def run(root: Path, flags: bytes, script: bytes = SCRIPT) -> tuple[str, ...]:
    machine = stock_windows(root, release="2022", cloud="aws")
    machine.files.make_folder(r"C:\var\lib\kubelet")
    machine.files.write(r"C:\var\lib\kubelet\config.yaml", b"{}")
    machine.files.write(r"C:\var\lib\kubelet\kubeadm-flags.env", flags)
    steps = run_script(machine, read_script(script, "start-kubelet.ps1"), read_parameters([]), r"C:\k")
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: tuple[str, ...] = end.value.arguments
        return found


@pytest.mark.parametrize("minor", ["1.14", "1.22", "1.34"])
def test_the_script_reads_what_kubeadm_writes(tmp_path: Path, minor: str) -> None:
    quoted = dataclasses.replace(
        JOIN, extra_args=(("node-labels", 'a="b c"'), ("root-dir", "C:\\var\\x")) if minor != "1.14" else ()
    )
    found = run(tmp_path, flags_file(quoted, minor, host_name="OTHER", repository="", socket_is_in_config=False))
    assert {SOCKET, NAME, TAINTS} <= set(found)
    if minor != "1.14":
        assert {"--node-labels=a=b c", r"--root-dir=C:\var\x"} <= set(found)


def test_a_script_that_does_not_read_the_flags_starts_kubelet_without_them(tmp_path: Path) -> None:
    part = b" + @(Read-KubeadmArgument -Path $flags)"
    assert part in SCRIPT
    found = run(tmp_path, b'KUBELET_KUBEADM_ARGS="--hostname-override=a"\n', SCRIPT.replace(part, b""))
    assert not [word for word in found if word.startswith("--hostname-override")]
