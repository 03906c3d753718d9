"""The programs that a node has can read every file that a config renders: their own Go packages read it here."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from imagegen import pipeline
from imagegen.catalog.facts import numbers
from tests.conftest import load_today
from tests.e2e import test_boot_matrix
from tests.e2e.go_programs import Program
from tests.golden.test_golden import CASES as GOLDEN_CASES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.config.node import Runtime

pytestmark = pytest.mark.e2e

# Each kind of file, and the files of the steps that have it.
KINDS: Final = {
    "cni": r"cni/.*\.conflist",
    "hns-network": r"cni/network-.*\.json",
    "flannel": r"cni/net-conf-.*\.json",
    "kube-proxy": r"cni/kube-proxy-config-.*\.yaml",
    "containerd": r"containerd/(config|operator)\.toml",
    "containerd-hosts": r"containerd/hosts-.*\.toml",
    "docker": r"docker/daemon\.json",
    "credential-provider": r"credential-providers/credential-provider-config\.yaml",
}
# Structured files that nothing here can read: imagegen's own, and those of programs that Go's proxy does not have.
UNREAD: Final = (
    r"cloudbase-init/restricted-address\.json",
    r"cloudbase-init/agent-config\.yml",
    r"kubernetes/crictl\.yaml",
)
# What set-pod-network.ps1 fills in after the join.
VALUES: Final = {
    "CLUSTER_CIDR": "10.244.0.0/16",
    "SERVICE_CIDR": "10.96.0.0/12",
    "POD_CIDR": "10.244.3.0/24",
    "GATEWAY": "10.244.3.1",
    "ENDPOINT": "10.244.3.2",
    "FIRST_POD": "10.244.3.3",
    "NETWORK": "cluster",
    "NODE_NAME": "win-1",
    "NODE_ADDRESS": "10.0.0.7",
    "NODE_NETWORK": "10.0.0.0/24",
}
NODE: Final = Program("node")
_OLD_DOCKER: Final = "github.com/docker/docker@v28.5.2+incompatible"
# By the first version that each reads.
DOCKER: Final = {
    "18.09": Program("docker", ("main.go", "v28.go"), _OLD_DOCKER, "cmd/imagegen", requirements="vendor"),
    "29.0": Program("docker", ("main.go", "v29.go"), "github.com/moby/moby/v2@v2.0.0-beta.24", "cmd/imagegen"),
}


def _containerd(module: str, *files: str) -> Program:
    return Program("containerd", ("main.go", *files), f"github.com/containerd/containerd{module}", "cmd/imagegen")


# By the first version that each reads: the lines in which the keys changed and whose module is on Go's proxy.
CONTAINERD: Final = {
    "1.4": _containerd("@v1.6.36", "v1.go"),
    "1.7": _containerd("@v1.7.35", "v1.go"),
    "2.0": _containerd("/v2@v2.0.14", "v2.go"),
    "2.1": _containerd("/v2@v2.4.2", "v2.go"),
}


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A file of an image, as the node has it."""

    kind: str
    text: str
    reader: Program = NODE


def _reader(kind: str, runtime: Runtime) -> Program:
    """The program of this version."""
    if kind == "docker" and runtime.docker:
        return _newest(DOCKER, runtime.docker.version)
    if kind.startswith("containerd") and runtime.containerd:
        return _newest(CONTAINERD, runtime.containerd.version)
    return NODE


def _newest(programs: Mapping[str, Program], version: str) -> Program:
    """The newest program that is not newer than a version."""
    return programs[max((first for first in programs if numbers(first) <= numbers(version)), key=numbers)]


def _rendered() -> Iterator[tuple[Rendered, str]]:
    """Each file of each image that a test boots or compares, with what to call it."""
    booted = [(case.file, case.target, case.sets) for case in test_boot_matrix.CASES]
    for file, target, sets in [*booted, *((file, target, ()) for file, target in GOLDEN_CASES)]:
        prepared = pipeline.prepare_target(load_today(file, *sets), target)
        for step in prepared.steps:
            for path, data in step.texts.items():
                found = _kind(path.removeprefix("files/"))
                if found:
                    reader = _reader(found, prepared.spec.config.runtime)
                    yield Rendered(found, fill(data.decode()), reader), f"{path} of {file.stem} with {', '.join(sets)}"


def _kind(path: str) -> str:
    kinds = [kind for kind, form in KINDS.items() if re.fullmatch(form, path)]
    is_structured = path.endswith((".json", ".yaml", ".yml", ".toml", ".conflist"))
    assert kinds or not is_structured or any(re.fullmatch(form, path) for form in UNREAD), f"nothing reads {path}"
    return kinds[0] if kinds else ""


def fill(text: str) -> str:
    for name, value in VALUES.items():
        text = text.replace(f"<{name}>", value)
    return text


def refusals(files: Mapping[Rendered, str]) -> list[str]:
    """What the programs refuse, with their reasons."""
    found = []
    for reader in {file.reader: None for file in files}:
        own = [file for file in files if file.reader == reader]
        reasons = json.loads(reader.run([{"kind": file.kind, "text": file.text} for file in own]))
        found += [f"{files[file]}: {reason}" for file, reason in zip(own, reasons, strict=True) if reason]
    return found


@pytest.fixture(scope="module")
def rendered() -> Mapping[Rendered, str]:
    return dict(_rendered())


def test_each_program_reads_its_files(rendered: Mapping[Rendered, str]) -> None:
    assert {file.kind for file in rendered} == set(KINDS)
    assert {file.reader for file in rendered} == {NODE, *DOCKER.values(), *CONTAINERD.values()}
    assert refusals(rendered) == []


# Of a configuration for these plugins, only what every plugin has is checked.
_UNRELEASED: Final = re.compile('"(azure-vnet|calico)"')
# The kind, what to change in its files, and a regular expression for what the programs say.
SPOILED: Final = [
    ("cni", '"type": "win-overlay"', '"typ": "win-overlay"', "missing 'type'|starts the plugin \"\""),
    ("cni", '"type": "win-overlay"', '"type": "win-overlays"', 'unknown plugin|starts the plugin "win-overlays"'),
    ("cni", '"loopbackDSR": true', '"loopbackDsr2": true', 'unknown field "loopbackDsr2"'),
    ("cni", '"apiVersion": 2', '"apiVersion": "2"', "cannot unmarshal string"),
    ("cni", '"Type": "SDNRoute"', '"Type": "SdnRoutes"', 'unknown policy "SdnRoutes"'),
    ("cni", '"NeedEncap": true', '"NeedEncaps": true', 'unknown field "NeedEncaps"'),
    ("cni", '"subnet": "10.244.3.0/24"', '"subnet": "10.244.3.0"', "invalid CIDR address"),
    ("hns-network", '"AddressPrefix"', '"AddressPrefixes"', 'unknown field "AddressPrefixes"'),
    ("flannel", '"VNI"', '"Vnid"', 'unknown key "Vnid"'),
    ("flannel", '"Type": "vxlan"', '"Type": "ipsec"', 'no back end "ipsec"'),
    ("kube-proxy", "sourceVip", "sourceVIPs", 'unknown field "winkernel.sourceVIPs"'),
    ("kube-proxy", "enableDSR: true", "enableDSR: 'on'", "cannot unmarshal string"),
    ("containerd", "discard_unpacked_layers", "discard_unpacked_layer", "discard_unpacked_layer"),
    ("containerd", "conf_dir = '", "conf_dir = 5 # '", "integer|int64"),
    ("containerd", "ScrubLogs = true", "ScrubLog = true", "options of runhcs-.*ScrubLog"),
    ("containerd-hosts", 'capabilities = ["pull", "resolve"]', "capabilities = 5", "the file names no mirror"),
    ("docker", '"hosts"', '"host"', 'unknown field "host"'),
    ("docker", '"max-file": "5"', '"max-file": 5', "cannot unmarshal number"),
    ("credential-provider", "defaultCacheDuration", "cacheDuration", r'unknown field "providers\[0\]\.cacheDuration"'),
    ("credential-provider", "kubelet.config.k8s.io/v1\n", "kubelet.config.k8s.io/v2\n", "no kind"),
]


@pytest.mark.parametrize(("kind", "old", "new", "reason"), SPOILED)
def test_a_spoiled_file_is_refused(
    rendered: Mapping[Rendered, str], kind: str, old: str, new: str, reason: str
) -> None:
    """Every program of its kind refuses it, in each of its versions."""
    files = [file for file in rendered if file.kind == kind and old in file.text and not _UNRELEASED.search(file.text)]
    assert files
    spoiled = {dataclasses.replace(file, text=file.text.replace(old, new)): kind for file in files}
    found = refusals(spoiled)
    assert len(found) == len(spoiled)
    assert all(re.search(reason, one) for one in found), found
