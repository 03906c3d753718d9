"""The configuration of `kubeadm join`: what each minor reads, and what it refuses in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.decode import KubeadmError
from imagegen.rehearsal.node.join_config import CONTAINERD, load_join
from tests.node_support import HOST, join_config, make_machine

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.join_config import JoinConfiguration

CLUSTER = Cluster("1.34.2")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = make_machine(tmp_path, "1.34.2")
    machine.restart()
    return machine


def load(machine: Machine, text: str, minor: str = "1.34", **flags: str) -> tuple[JoinConfiguration, tuple[str, ...]]:
    return load_join(text.encode(), minor, machine, shown_as="join.yaml", **flags)


READS = "reads"
WARNS = "uses a deprecated API spec"
OLD = "uses an old API spec"
EXPERIMENTAL = "experimental API spec"
UNKNOWN = "is registered for version"


@pytest.mark.parametrize(
    ("version", "first_minors"),
    [
        ("v1alpha3", {14: OLD}),
        ("v1beta1", {15: READS, 16: READS, 17: WARNS, 21: WARNS, 22: OLD, 37: OLD}),
        ("v1beta2", {14: UNKNOWN, 15: READS, 23: READS, 24: WARNS, 26: WARNS, 27: OLD}),
        ("v1beta3", {21: UNKNOWN, 22: READS, 30: READS, 31: WARNS, 36: WARNS, 37: OLD}),
        ("v1beta4", {27: UNKNOWN, 28: EXPERIMENTAL, 30: EXPERIMENTAL, 31: READS, 37: READS}),
        ("v1", {37: UNKNOWN}),
    ],
)
def test_a_minor_reads_the_versions_that_its_kubeadm_has(
    machine: Machine, version: str, first_minors: dict[int, str]
) -> None:
    for number, expected in first_minors.items():
        try:
            _, warnings = load(machine, join_config(CLUSTER, version=version), f"1.{number}")
        except KubeadmError as error:
            found = str(error)
        else:
            found = " ".join(warnings) or READS
        assert expected in found, number


PORT = "controlPlane: {localAPIEndpoint: {bindPort: true}}"
# What is wrong; kubeadm's minor; the lines that replace others; kubeadm's words.
REFUSED: list[Any] = [
    ("template left in the name", "1.34", {"name: ip": "  name: '{{ ds.meta_data.local_hostname }}'"}, "RFC 1123"),
    ("name with an underscore", "1.34", {"name: ip": "  name: node_1"}, 'name: Invalid value: "node_1"'),
    ("short token", "1.34", {"token": "    token: abcdef.0123"}, "the bootstrap token is invalid"),
    ("no hash of the CA", "1.34", {"sha256": "", "caCertHashes": ""}, "without caCertHashes can be unsafe"),
    ("endpoint without port", "1.34", {"apiServerEndpoint": "    apiServerEndpoint: 10.0.0.4"}, "missing port"),
    ("list before v1beta4", "1.34", {"apiVersion": "apiVersion: kubeadm.k8s.io/v1beta3"}, "cannot unmarshal array"),
    ("number as a value", "1.34", {"value: external": "    value: 5"}, "cannot unmarshal number"),
    ("argument without name", "1.34", {"name: cloud-provider": '  - name: ""'}, "argument has no name"),
    ("boolean as a number", "1.34", {"kind": f"kind: JoinConfiguration\n{PORT}"}, "cannot unmarshal bool"),
    ("kind missing", "1.34", {"kind": ""}, "kind and apiVersion is mandatory"),
    ("other kind", "1.34", {"kind": "kind: InitConfiguration"}, "no JoinConfiguration found"),
    ("no YAML", "1.34", {"kind": "kind: [JoinConfiguration"}, "error converting YAML to JSON"),
    ("no discovery", "1.34", {"discovery": "other:"}, "bootstrapToken or file must be set"),
]


@pytest.mark.parametrize(("minor", "changes", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_kubeadm_refuses(machine: Machine, minor: str, changes: dict[str, str], words: str) -> None:
    text = join_config(CLUSTER, **changes)
    with pytest.raises(KubeadmError, match=words):
        load(machine, text, minor)


@pytest.mark.parametrize(
    ("minor", "version", "socket", "words"),
    [
        ("1.14", "v1beta1", CONTAINERD, "URL scheme npipe is not supported"),
        ("1.22", "v1beta3", "unix:///run/containerd.sock", "URL scheme unix is not supported"),
        ("1.22", "v1beta3", "containerd-containerd", "path is not absolute"),
        ("1.23", "v1beta3", "//./pipe/containerd-containerd", "path is not absolute"),
        ("1.23", "v1beta3", r"\\.\pipe\containerd-containerd", "path is not absolute"),
        # What it finds by itself, while containerd runs and Docker does not.
        ("1.23", "v1beta3", '""', '"//./pipe/containerd-containerd": path is not absolute'),
    ],
)
def test_a_socket_is_refused(machine: Machine, minor: str, version: str, socket: str, words: str) -> None:
    text = join_config(CLUSTER, version=version, criSocket=f"  criSocket: {socket}")
    with pytest.raises(KubeadmError, match=words):
        load(machine, text, minor)


def test_a_socket_without_scheme_gets_one(machine: Machine) -> None:
    text = join_config(CLUSTER, criSocket="  criSocket: //./pipe/containerd-containerd")
    configuration, warnings = load(machine, text)
    assert configuration.cri_socket == CONTAINERD
    assert "without URL scheme is deprecated" in " ".join(warnings)


def test_a_map_is_refused_where_kubeadm_reads_a_list(machine: Machine) -> None:
    text = join_config(CLUSTER, version="v1beta3").replace("v1beta3", "v1beta4")
    with pytest.raises(KubeadmError, match="cannot unmarshal object"):
        load(machine, text)


def test_a_kind_is_not_given_twice_and_other_kinds_do_not_matter(machine: Machine) -> None:
    text = join_config(CLUSTER)
    with pytest.raises(KubeadmError, match="specified twice"):
        load(machine, text + text)
    other = "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    assert load(machine, other + text)[0].endpoint == CLUSTER.endpoint


@pytest.mark.parametrize("minor", ["1.22", "1.34"])
def test_an_unknown_field_is_a_warning_in_every_minor(machine: Machine, minor: str) -> None:
    version = "v1beta3" if minor == "1.22" else "v1beta4"
    text = join_config(CLUSTER, version=version).replace("  criSocket", "  socket: a\n  criSocket")
    configuration, warnings = load(machine, text, minor)
    assert any('unknown field "nodeRegistration.socket"' in warning for warning in warnings)
    assert configuration.cri_socket == CONTAINERD


def test_a_field_of_a_newer_version_is_unknown(machine: Machine) -> None:
    _, warnings = load(machine, join_config(CLUSTER, version="v1beta3") + "timeouts:\n  discovery: 1m0s\n")
    assert any('unknown field "timeouts"' in warning for warning in warnings)


@pytest.mark.parametrize(
    "line", ["controlPlane: {localAPIEndpoint: {bindPort: 6443}}", "dryRun: true", "skipPhases: [preflight]"]
)
def test_what_the_rehearsal_has_no_model_of_is_refused_by_name(machine: Machine, line: str) -> None:
    with pytest.raises(UnknownCommandError, match=line.partition(":")[0]):
        load(machine, f"{join_config(CLUSTER)}{line}\n")


def test_what_is_not_given_comes_from_the_machine(machine: Machine) -> None:
    configuration, _ = load(machine, join_config(CLUSTER, **{"name: ip": "", "criSocket": ""}))
    assert (configuration.name, configuration.cri_socket) == (HOST.lower(), CONTAINERD)
    assert configuration.tls_token == configuration.token


def test_flags_of_the_command_line_count_more(machine: Machine) -> None:
    assert load(machine, join_config(CLUSTER), name="other")[0].name == "other"


def test_times_are_those_of_the_version(machine: Machine) -> None:
    as_list, _ = load(machine, join_config(CLUSTER) + "timeouts:\n  discovery: 1m30s\n  tlsBootstrap: 2m0s\n")
    assert (as_list.discovery_s, as_list.tls_bootstrap_s, as_list.healthy_s) == (90, 120, 240)
    old = join_config(CLUSTER, version="v1beta3").replace("  bootstrapToken:", "  timeout: 10m0s\n  bootstrapToken:")
    assert load(machine, old)[0].discovery_s == 600
