"""An override may have any layout: the plan names the right file, and the model machine has its bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.base.errors import ConfigError
from imagegen.plan.context import artifact_requests
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.machine import run_entry, stock_windows
from imagegen.render import bundle_zip, guest_plan
from tests.conftest import load_today, locked, make_test_lock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.plan.loading import Loaded
    from imagegen.plan.resolve import Decision

CONFIG = Path(__file__).parents[2] / "configs" / "windows-2022-containerd.yaml"
ZIP = r"C:\Windows\Temp\imagegen-bundle.zip"
HOST = "https://packages.example.com"
K, CONTAINERD = r"C:\k", r"C:\Program Files\containerd"
RESTART_DUE = 3010
KUBERNETES = ("kubelet", "kubeadm", "kubectl", "kube-log-runner")


def program(name: str) -> bytes:
    return f"MZ {name} of the operator".encode()


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


def tarred(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def programs(folder: str, *names: str) -> dict[str, bytes]:
    return {f"{folder}{name}.exe": program(name) for name in names}


NODE = programs("kubernetes/node/bin/", *KUBERNETES, "kube-proxy") | {"kubernetes/LICENSES": b"text"}
CONTAINERS = ("containerd", "ctr", "containerd-shim-runhcs-v1")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Overrides, what is at their URLs, and the files that a machine then has. Also the kinds of resource."""

    sets: tuple[str, ...]
    served: Mapping[str, bytes]
    files: Mapping[str, bytes]
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)


def on_machine(folder: str, *names: str) -> dict[str, bytes]:
    return {f"{folder}\\{name}.exe": program(name) for name in names}


def one(name: str, key: str, data: bytes, files: Mapping[str, bytes], **kinds: str) -> Layout:
    """One override, whose URL has no ending: only the bytes tell what it is."""
    return Layout((f"overrides.{key}={HOST}/{name}",), {f"{HOST}/{name}": data}, files, kinds)


LAYOUTS = {
    "a program alone": one("a", "kubelet_url", program("kubelet"), on_machine(K, "kubelet"), kubelet="file"),
    "one program per zip": one(
        *("a", "kubelet_url", zipped(programs("", "kubelet"))), on_machine(K, "kubelet"), kubelet="extract"
    ),
    "in a folder": one("a", "kubelet_url", zipped(programs("bin/x/", "kubelet")), on_machine(K, "kubelet")),
    "beside a copy": one(
        "a", "kubelet_url", zipped(programs("a/", "kubelet") | programs("b/", "kubelet")), on_machine(K, "kubelet")
    ),
    "in a folder with a space": one(
        "a", "kubelet_url", zipped(programs("signed files/v1.36+x (1)/", "kubelet")), on_machine(K, "kubelet")
    ),
    "node tarball for one program": one("a", "kubectl_url", tarred(NODE), on_machine(K, "kubectl")),
    "a single one wins over the base": Layout(
        (
            "overrides.kubernetes_base_url=" + f"{HOST}/node.tar.gz",
            f"overrides.kubelet_url={HOST}/kubelet",
        ),
        {
            f"{HOST}/node.tar.gz": tarred({**NODE, "kubernetes/node/bin/kubelet.exe": b"MZ another"}),
            f"{HOST}/kubelet": program("kubelet"),
        },
        on_machine(K, *KUBERNETES),
        {"kubelet": "file", "kubeadm": "extract"},
    ),
    "a template": Layout(
        (f"overrides.kubernetes_base_url={HOST}/{{name}}/{{version}}/{{name}}_{{version}}-1_amd64.zip",),
        {f"{HOST}/{name}/1.36.4/{name}_1.36.4-1_amd64.zip": zipped(programs("", name)) for name in KUBERNETES},
        on_machine(K, *KUBERNETES),
    ),
    "windowszip": Layout(
        (f"overrides.kubernetes_base_url={HOST}/v1.36.4-1int.zip",),
        {f"{HOST}/v1.36.4-1int.zip": zipped(NODE)},
        on_machine(K, *KUBERNETES),
    ),
    "windowszip below k": Layout(
        (f"overrides.kubernetes_base_url={HOST}/v1.36.4-1int.zip",),
        {f"{HOST}/v1.36.4-1int.zip": zipped(programs("k/", *KUBERNETES))},
        on_machine(K, *KUBERNETES),
    ),
    "node tarball by its URL": Layout(
        (f"overrides.kubernetes_base_url={HOST}/own-node.tar.gz", "kubernetes.source=node-tarball"),
        {f"{HOST}/own-node.tar.gz": tarred(NODE)},
        on_machine(K, *KUBERNETES),
    ),
    "node zip with other folders": Layout(
        (f"overrides.kubernetes_base_url={HOST}/own-node.zip", "kubernetes.source=node-tarball"),
        {f"{HOST}/own-node.zip": zipped(programs("signed/", *KUBERNETES))},
        on_machine(K, *KUBERNETES),
    ),
    "containerd upstream": one(
        *("a", "containerd_url", tarred(programs("bin/", *CONTAINERS, "containerd-stress"))),
        on_machine(CONTAINERD, *CONTAINERS),
        containerd="archive",
    ),
    "containerd in another folder": one(
        *("a", "containerd_url", zipped(programs("containerd-2.3.4/bin/", *CONTAINERS) | {"README": b"text"})),
        on_machine(CONTAINERD, *CONTAINERS),
        containerd="archive",
    ),
    "containerd without a folder": one(
        *("a", "containerd_url", zipped(programs("", *CONTAINERS))),
        on_machine(CONTAINERD, *CONTAINERS),
        containerd="archive",
    ),
    "containerd in several folders": one(
        *("a", "containerd_url", zipped(programs("bin/", "containerd", "ctr") | programs("shim/", CONTAINERS[2]))),
        on_machine(CONTAINERD, *CONTAINERS),
        containerd="extract",
    ),
    "containerd very deep": one(
        *("a", "containerd_url", zipped(programs("a/" * 9, *CONTAINERS))),
        on_machine(CONTAINERD, *CONTAINERS),
        containerd="extract",
    ),
    "crictl alone": one("a", "crictl_url", program("crictl"), on_machine(K, "crictl"), crictl="file"),
    "crictl in a folder": one(
        *("a", "crictl_url", zipped(programs("bin/", "crictl", "critest"))),
        on_machine(K, "crictl"),
        crictl="archive",
    ),
    "csi-proxy alone": Layout(
        (f"overrides.csi_proxy_url={HOST}/a", "csi_proxy={}"),
        {f"{HOST}/a": program("csi-proxy")},
        on_machine(K, "csi-proxy"),
        {"csi-proxy": "file"},
    ),
    "nssm of another folder": Layout(
        (f"overrides.nssm_url={HOST}/a", "kubernetes.service_manager=nssm"),
        {f"{HOST}/a": zipped({"own/win32/nssm.exe": b"MZ 32 bits", "own/win64/nssm.exe": program("nssm")})},
        on_machine(K, "nssm"),
        {"nssm": "extract"},
    ),
    "nssm alone": Layout(
        (f"overrides.nssm_url={HOST}/a", "kubernetes.service_manager=nssm"),
        {f"{HOST}/a": program("nssm")},
        on_machine(K, "nssm"),
        {"nssm": "file"},
    ),
    "hybrid overlay in a tarball": Layout(
        (
            f"overrides.hybrid_overlay_url={HOST}/a",
            "windows.hyper_v=tools",
            "cni={plugin: ovn-kubernetes, version: '1.1.0'}",
        ),
        {f"{HOST}/a": tarred(programs("ovn/", "hybrid-overlay-node"))},
        on_machine(K, "hybrid-overlay-node"),
        {"hybrid-overlay": "extract"},
    ),
    "flannel under its name on the machine": Layout(
        (f"overrides.flannel_plugin_url={HOST}/a", f"overrides.flannel_url={HOST}/b", "cni={plugin: flannel}"),
        {f"{HOST}/a": zipped(programs("cni/", "flannel")), f"{HOST}/b": program("flanneld")},
        {**on_machine(K, "flanneld"), **on_machine(r"C:\opt\cni\bin", "flannel")},
        {"flannel-plugin": "extract", "flannel": "file"},
    ),
    "a provider under another name": Layout(
        (f"credential_providers=[{{name: acr-credential-provider, url: '{HOST}/a', match_images: ['*.azurecr.io']}}]",),
        {f"{HOST}/a": zipped({"azure-acr-credential-provider.exe": program("acr"), "LICENSE": b"text"})},
        {r"C:\var\lib\kubelet\credential-provider\acr-credential-provider.exe": program("acr")},
        {"credential-provider-1": "extract"},
    ),
}  # fmt: skip


def _decision(loaded: Loaded, served: Mapping[str, bytes]) -> tuple[Decision, dict[str, bytes]]:
    """The plan whose lock was made of these bytes, and all bytes by URL."""
    target = pipeline.prepare_target(loaded, "aws")
    bytes_at = {**make_artifacts(target.steps), **served}
    lock = make_test_lock(loaded, "aws")
    artifacts = {name: locked(item, bytes_at[item.url]) for name, item in artifact_requests(target.steps).items()}
    return pipeline.decide(target, lock.model_copy(update={"artifacts": artifacts})), bytes_at


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (
            one("a", "kubelet_url", zipped({"a/kubelet.exe": b"MZ 1", "b/kubelet.exe": b"MZ 2"}), {}),
            (
                "the archive kubelet has different files with the name kubelet.exe",
                "a/kubelet.exe, b/kubelet.exe",
                "artifact",
            ),
        ),
        (
            one("a", "kubelet_url", zipped(programs("", "kubeadm")), {}),
            ("the archive kubelet does not have kubelet.exe", "it has kubeadm.exe", "artifact"),
        ),
        (
            one("a", "kubelet_url", zipped(programs("v[1]/", "kubelet")), {}),
            (
                "the archive kubelet has 'v[1]/kubelet.exe', a path that the machine cannot take from an archive",
                "pack it again, in folders with names of letters, digits, spaces, dots, dashes and underscores",
                "artifact",
            ),
        ),
        (
            one("a", "containerd_url", zipped(programs("bin/", "containerd", "ctr")), {}),
            (
                "the archive containerd does not have containerd-shim-runhcs-v1.exe",
                "it has bin/containerd.exe, bin/ctr.exe",
                "expect",
            ),
        ),
        (
            one("a", "nssm_url", zipped({"a/nssm.exe": b"MZ 1", "b/nssm.exe": b"MZ 2"}), {}),
            ("the archive nssm has different files with the name nssm.exe", "a/nssm.exe, b/nssm.exe", "member"),
        ),
    ],
)
def test_a_lock_with_another_layout_is_refused_by_the_plan(layout: Layout, says: tuple[str, str, str]) -> None:
    """A lock of an older version may have such an archive: nobody looked for the programs."""
    sets = (*layout.sets, *(["kubernetes.service_manager=nssm"] if says[2] == "member" else []))
    with pytest.raises(ConfigError) as raised:
        _decision(load_today(CONFIG, *sets), layout.served)
    (problem,) = raised.value.problems
    assert (problem.message, problem.hint, problem.path.rpartition(".")[2]) == says


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_machine_has_the_programs_of_the_override(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    decision, bytes_at = _decision(load_today(CONFIG, *layout.sets), layout.served)
    planned = [item for phase in decision.plan.image.phases for item in phase.resources()]
    used = {
        item.fields["artifact"]: "extract" if item.fields.get("member") else item.kind
        for item in planned
        if item.fields.get("artifact")
    }
    assert {artifact: used[artifact] for artifact in layout.kinds} == dict(layout.kinds)
    said = guest_plan(decision.plan)
    bundle = bundle_zip(said, decision.bundle)
    machine = stock_windows(tmp_path / "disk", release="2022", cloud="aws")
    machine.files.write(ZIP, bundle)
    pins = ["-BundleSha256", hashlib.sha256(bundle).hexdigest(), "-PlanSha256", hashlib.sha256(said).hexdigest()]
    for phase in decision.plan.image.phases:
        outcome = run_entry(machine, ["-Phase", phase.name, "-Bundle", ZIP, *pins], lambda url, *_: bytes_at[url])
        assert outcome.exit_code in (0, RESTART_DUE), outcome.output
        machine.restart()
    assert {path: machine.files.read(path) for path in layout.files} == dict(layout.files)
