"""What kubelet of each minor accepts, compared with the catalogue and with what the image gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.catalog.facts import numbers, table
from imagegen.config.checks import OWN_FLAGS
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.node.facts import is_within, read_facts
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.kubelet_options import check_kubelet, last_values, parse_arguments
from tests.node_support import make_machine

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

MINORS = list(table("kubernetes")["minors"])
CONFIG = r"C:\var\lib\kubelet\config.yaml"
SOCKET = "npipe:////./pipe/containerd-containerd"
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = make_machine(tmp_path, "1.34.2")
    machine.restart()
    machine.files.write(CONFIG, HEAD.encode())
    return machine


def check(machine: Machine, minor: str, *arguments: str) -> None:
    remote = ("--container-runtime=remote",) if numbers(minor) < (1, 24) else ()
    given = (f"--config={CONFIG}", f"--container-runtime-endpoint={SOCKET}", *remote, *arguments)
    check_kubelet(machine, last_values(parse_arguments(given, minor)), minor)


@pytest.mark.parametrize("minor", MINORS)
def test_every_minor_knows_the_flags_of_the_start_script(minor: str) -> None:
    parse_arguments([f"--{flag}=x" for flag in sorted(OWN_FLAGS)], minor)


def test_the_flags_end_where_the_catalogue_says() -> None:
    known = read_facts("kubelet")["flags"]
    rows = table("kubelet")["flags"]
    assert {flag: known[flag][1] for flag in rows} == {flag: row["last"] for flag, row in rows.items()}


def test_the_gates_are_known_where_the_catalogue_says() -> None:
    known = read_facts("kubelet")["gates"]
    for gate, row in table("kubelet")["feature_gates"].items():
        for minor in MINORS:
            expected = is_within(minor, row["first"], row["last"])
            assert is_within(minor, *known[gate]) == expected, f"{gate} in {minor}"
    assert set(table("kubelet")["gate_defaults"]) <= set(known)


@pytest.mark.parametrize(
    ("minor", "argument", "words"),
    [
        ("1.34", "--cloud-provder=external", "unknown flag: --cloud-provder"),
        ("1.34", "--register-schedulable=true", "unknown flag: --register-schedulable"),
        ("1.31", "--iptables-drop-bit=15", "unknown flag: --iptables-drop-bit"),
        ("1.35", "--pod-infra-container-image=a", "unknown flag: --pod-infra-container-image"),
        ("1.27", "--container-runtime=remote", "unknown flag: --container-runtime"),
        ("1.19", "--image-credential-provider-config=a", "unknown flag: --image-credential-provider-config"),
        ("1.34", "stray", "unknown command stray"),
        ("1.34", "--feature-gates=NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
        ("1.27", "--feature-gates=IdentifyPodOS=true", "unrecognized feature gate: IdentifyPodOS"),
        ("1.35", "--feature-gates=GracefulNodeShutdown=false", "depends on features that are disabled"),
        ("1.34", "--feature-gates=WinOverlay=false", "cannot set feature gate WinOverlay to false"),
        ("1.34", "--register-with-taints=os=windows", "invalid taint spec"),
        ("1.34", "--node-labels=node-role.kubernetes.io/worker=", "unknown 'kubernetes.io' or 'k8s.io' labels"),
        ("1.34", "--container-runtime-endpoint=npipe:////./pipe/dockershim", "no service answers"),
        (
            "1.34",
            "--container-runtime-endpoint=//./pipe/containerd-containerd",
            "please consider using full url format",
        ),
        ("1.34", r"--config=C:\none.yaml", "cannot find the file"),
    ],
)
def test_kubelet_ends(machine: Machine, minor: str, argument: str, words: str) -> None:
    with pytest.raises(KubeletError, match=words):
        check(machine, minor, argument)


@pytest.mark.parametrize(
    ("minor", "argument"),
    [
        ("1.33", "--register-schedulable=true"),
        ("1.30", "--iptables-drop-bit=15"),
        ("1.34", "--feature-gates=GracefulNodeShutdown=false"),
        ("1.26", "--feature-gates=IdentifyPodOS=true"),
        ("1.15", "--node-labels=node-role.kubernetes.io/worker="),
        ("1.34", "--node-labels=node.kubernetes.io/pool=a,topology.kubernetes.io/zone=b,own/label=c"),
    ],
)
def test_kubelet_accepts(machine: Machine, minor: str, argument: str) -> None:
    check(machine, minor, argument)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n", "is registered for version"),
        (HEAD + "featureGates:\n  NoSuchGate: true\n", "unrecognized feature gate"),
        (HEAD + "authentication:\n  x509:\n    clientCAFile: /etc/none.crt\n", "unable to load client CA file"),
        ("- a\n", "is not a map"),
    ],
)
def test_kubelet_ends_over_its_configuration(machine: Machine, text: str, words: str) -> None:
    machine.files.write(CONFIG, text.encode())
    with pytest.raises(KubeletError, match=words):
        check(machine, "1.34")


@pytest.mark.parametrize(
    ("path", "argument", "is_found"),
    [
        ("/etc/kubernetes/pki/ca.crt", "--v=2", False),
        ("/etc/kubernetes/pki/ca.crt", r"--client-ca-file=C:\etc\kubernetes\pki\ca.crt", True),
        (r"C:\etc\kubernetes\pki\ca.crt", "--v=2", True),
        ("", "--v=2", True),
    ],
)
def test_a_path_without_a_drive_is_below_the_folder_of_the_configuration(
    machine: Machine, path: str, argument: str, is_found: bool
) -> None:
    machine.files.write(r"C:\etc\kubernetes\pki\ca.crt", b"x")
    machine.files.write(CONFIG, f"{HEAD}authentication:\n  x509:\n    clientCAFile: '{path}'\n".encode())
    if is_found:
        check(machine, "1.22", argument)
    else:
        with pytest.raises(KubeletError, match="unable to load client CA file"):
            check(machine, "1.22", argument)
    machine.files.make_folder(r"C:\var\lib\kubelet\etc\kubernetes\pki")
    machine.files.write(r"C:\var\lib\kubelet\etc\kubernetes\pki\ca.crt", b"x")
    check(machine, "1.22", argument)


def test_kubelet_ends_without_its_runtime(machine: Machine) -> None:
    machine.services.ended("containerd")
    with pytest.raises(KubeletError, match="no service answers"):
        check(machine, "1.34")


def test_a_cloud_provider_in_the_tree_is_refused_by_name(machine: Machine) -> None:
    with pytest.raises(UnknownCommandError, match="cloud-provider=other"):
        check(machine, "1.20", "--cloud-provider=other")


def test_the_last_value_counts_and_maps_add_up() -> None:
    found = last_values(
        [
            ("v", "2"),
            ("feature-gates", "A=true,B=true"),
            ("v", "4"),
            ("feature-gates", "B=false"),
            ("node-labels", "x="),
        ]
    )
    assert found == {"v": "4", "feature-gates": "A=true,B=false", "node-labels": "x="}


def test_the_facts_are_of_the_minors_that_the_catalogue_knows() -> None:
    newest = max(MINORS, key=numbers)
    assert f"to {newest}" in read_facts("kubelet")["source"]["from"]
    assert f"to {newest}" in read_facts("kubeadm")["source"]["from"]
