"""Overrides in the forms of the world: without an ending, one program per zip, all in one archive, a program alone; and
a web page in their place."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from tests import conftest
from tests.conftest import load_today
from tests.e2e import boot_support
from tests.e2e.rehearsal_support import CONFIG, DEADLINE_S, imagegen, sandbox_of, setup_of, user_environ

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imagegen.rehearsal.artifacts import Sign
    from imagegen.steps.evaluate import EvaluatedStep

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

DOWNLOAD = "https://repo.example/artifactory/c/download"
OVERRIDE = f"overrides.containerd_url={DOWNLOAD}"
SIGN_IN = b"<!DOCTYPE html>\n<html><title>Sign in</title></html>\n"


def test_an_archive_needs_no_ending(tmp_path: Path) -> None:
    words = imagegen("build", CONFIG, "--target", "aws", "--rehearse", "--set", OVERRIDE, "--out", tmp_path / "out")
    environ = user_environ(tmp_path)
    done = process.run([*words, "--format", "json"], environ=environ, cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["inputs"]["artifacts"]["containerd"]["url"] == DOWNLOAD
    unpacked = [item for item in manifest["report"]["resources"] if item["id"] == "containerd/archive:containerd"]
    assert [sorted(item["facts"]["members"]) for item in unpacked] == [
        ["containerd-shim-runhcs-v1.exe", "containerd-stress.exe", "containerd.exe", "ctr.exe"]
    ]


AKS = "https://packages.aks.azure.com/dalec-packages/{name}/{version}/windows/amd64/{name}_{version}-1_amd64.zip"
OWN = "https://artifacts.example.com"
KUBERNETES = ("kubelet", "kubeadm", "kubectl", "kube-log-runner")


def test_each_override_may_be_packed_in_its_own_way(tmp_path: Path) -> None:
    """A whole build and the boot of a node: a template, a zip for a tarball, a program alone."""
    sets = {
        "overrides.kubernetes_base_url": AKS,
        "overrides.kubectl_url": f"{OWN}/kubectl.tar.gz",
        "overrides.containerd_url": f"{OWN}/containerd.zip",
        "overrides.crictl_url": f"{OWN}/crictl.exe",
    }
    words = imagegen("build", CONFIG, "--target", "azure", "--rehearse", "--out", tmp_path / "out")
    words += [word for name, url in sets.items() for word in ("--set", f"{name}={url}")]
    done = process.run([*words, "--format", "json"], environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    ids = {item["id"] for item in manifest["report"]["resources"]}
    extracted = {rf"kubernetes/extract:C:\k\{name}.exe" for name in KUBERNETES}
    assert ids >= {*extracted, r"kubernetes/file:C:\k\crictl.exe", "containerd/archive:containerd"}
    urls = {name: artifact["url"] for name, artifact in manifest["inputs"]["artifacts"].items()}
    assert urls["kubectl"] == sets["overrides.kubectl_url"]
    assert urls["kubelet"] == AKS.format(name="kubelet", version=manifest["versions"]["kubernetes"])


def _repacked(data: bytes, folder: str) -> bytes:
    """The files of a zip in another folder, with each program in a second place too."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if not name.endswith("/"):
                new.writestr(f"{folder}/{name}", old.read(name))
                new.writestr(f"copies/{folder}/{name}", old.read(name))
    return out.getvalue()


@pytest.mark.parametrize(
    ("sets", "folder"),
    [
        ((f"overrides.kubernetes_base_url={OWN}/v1-1int.zip",), "kubernetes/node/bin"),
        ((f"overrides.kubernetes_base_url={OWN}/node.zip", "kubernetes.source=node-tarball"), "signed"),
        ((f"overrides.containerd_url={OWN}/containerd.zip", f"overrides.kubelet_url={OWN}/kubelet.zip"), "a/b/c"),
    ],
    ids=["windowszip", "node archive", "other folders"],
)
def test_a_node_comes_up_whatever_the_layout(
    sets: tuple[str, ...], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(steps: Sequence[EvaluatedStep], sign: Sign | None) -> dict[str, bytes]:
        made = make_artifacts(steps, sign)
        return {url: _repacked(data, folder) if url.startswith(OWN) else data for url, data in made.items()}

    for module in (conftest, boot_support):
        monkeypatch.setattr(module, "make_artifacts", make)
    image = boot_support.make_image("aws", tmp_path / "machine", load_today(CONFIG, *sets))
    (tmp_path / "boot").mkdir()
    found = boot_image(image, Runner(tmp_path / "boot", os.environ))
    assert found.failed == {}


def test_a_web_page_is_no_archive(tmp_path: Path) -> None:
    setup = setup_of("aws", tmp_path, load_today(CONFIG, OVERRIDE))
    assert DOWNLOAD in setup.artifacts
    changed = dataclasses.replace(setup, artifacts={**setup.artifacts, DOWNLOAD: SIGN_IN})
    words = imagegen("lock", CONFIG, "--target", "aws", "--set", OVERRIDE, "--lock", tmp_path / "lock.json")
    with sandbox_of(changed, tmp_path) as sandbox:
        environ = sandbox.child_environ(user_environ(tmp_path))
        done = process.run(words, environ=environ, cwd=tmp_path, timeout=DEADLINE_S)
        assert sandbox.faults == []
    assert done.returncode == ExitCode.VERIFICATION
    assert f"containerd: {DOWNLOAD} is a web page, not an archive (.zip, .tar.gz or .tar)" in done.stderr
    assert "hint: a login page or a web filter answered" in done.stderr
    assert not (tmp_path / "lock.json").exists()
