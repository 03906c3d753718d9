"""Where the digests of public artifacts are, by the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.catalog.facts import table
from imagegen.fetch.policy import with_publishing
from imagegen.fetch.request import ArtifactRequest, PublishedDigest
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

from imagegen.base.contents import SHIPPED

GITHUB = "https://github.com"
KUBELET = "https://dl.k8s.io/release/v{}/bin/windows/amd64/kubelet.exe"
CONTAINERD = f"{GITHUB}/containerd/containerd/releases/download/v2.3.4/containerd-2.3.4-windows-amd64.tar.gz"
CRICTL = f"{GITHUB}/kubernetes-sigs/cri-tools/releases/download/v{{0}}/crictl-v{{0}}-windows-amd64.tar.gz"
FLANNEL = f"{GITHUB}/flannel-io/cni-plugin/releases/download/v1.9.1-flannel1/cni-plugin-flannel-windows-amd64.tgz"
CALICO = f"{GITHUB}/projectcalico/calico/releases/download/v3.31.0"
WINS = f"{GITHUB}/rancher/wins/releases/download/v{{}}/wins.exe"


def request(url: str, published: str = "", *, own: bool = False) -> ArtifactRequest:
    return ArtifactRequest("a", url, None, "file", "overrides.a_url", published or url, own=own)


@pytest.mark.parametrize(
    ("url", "digest"),
    [
        (KUBELET.format("1.36.4"), KUBELET.format("1.36.4") + ".sha256"),
        (KUBELET.format("1.37.0-rc.1"), KUBELET.format("1.37.0-rc.1") + ".sha256"),
        (KUBELET.format("1.16.0"), KUBELET.format("1.16.0") + ".sha256"),
        (KUBELET.format("1.15.12"), None),
        (
            "https://dl.k8s.io/v1.36.4/kubernetes-node-windows-amd64.tar.gz",
            "https://dl.k8s.io/v1.36.4/kubernetes-node-windows-amd64.tar.gz.sha256",
        ),
        (CONTAINERD, f"{CONTAINERD}.sha256sum"),
        (CRICTL.format("1.36.0"), CRICTL.format("1.36.0") + ".sha256"),
        (CRICTL.format("1.20.0"), None),
        (FLANNEL, f"{FLANNEL}.sha256"),
        (f"{CALICO}/calico-windows-v3.31.0.zip", f"{CALICO}/SHA256SUMS"),
        (WINS.format("0.15.0"), f"{GITHUB}/rancher/wins/releases/download/v0.15.0/sha256.txt"),
        (WINS.format("0.0.4"), None),
        ("https://k8stestinfrabinaries.blob.core.windows.net/nssm-mirror/nssm-2.24.zip", None),
        ("https://elsewhere.example/v1.36.4/kubelet.exe", None),
        (KUBELET.format("x").replace("dl.k8s.io", "dl-k8s.io"), None),
    ],
)
def test_where_a_digest_is(url: str, digest: str | None) -> None:
    expected = PublishedDigest(digest, required=True) if digest else None
    assert with_publishing(request(url)).digest == expected
    assert with_publishing(request(url, own=True)) == request(url, own=True)


def test_a_mirror_may_lack_the_digest() -> None:
    public = KUBELET.format("1.36.4")
    mirrored = public.replace("https://", "https://mirror.example.com/all/")
    found = with_publishing(request(mirrored, public))
    assert found.digest == PublishedDigest(f"{mirrored}.sha256", required=False)


@pytest.mark.parametrize(
    ("url", "day"),
    [
        (KUBELET.format("1.36.0"), table("kubernetes")["minors"]["1.36"]["released"]),
        (KUBELET.format("1.36.4"), ""),
        (KUBELET.format("1.36.0-rc.1"), ""),
        (KUBELET.format("1.99.0"), ""),
        (f"{GITHUB}/cloudbase/cloudbase-init/releases/download/1.1.8/CloudbaseInitSetup_1_1_8_x64.msi", "2026-04-17"),
        (f"{GITHUB}/cloudbase/cloudbase-init/releases/download/1.1.0/CloudbaseInitSetup_1_1_0_x64.msi", ""),
        (CONTAINERD, ""),
    ],
)
def test_the_day_of_a_release_is_that_of_this_version(url: str, day: str) -> None:
    assert with_publishing(request(url)).released == day


def public_addresses() -> Iterator[str]:
    for step in load_steps(SHIPPED.step_roots).values():
        for artifact in step.meta.artifacts.values():
            address = str(artifact.url or artifact.base)
            if artifact.override and address.startswith("https://"):
                yield address
    for part in ("archives", "folders", "packages"):
        yield from (f"{row['address']}/" for row in table("releases")[part].values())


def test_it_is_known_of_each_public_artifact_whether_it_has_a_digest() -> None:
    """Without a row, a lock would demand nothing of a project that publishes a digest."""
    rows = table("publishing")
    known = [row["address"] for part in ("digests", "without") for row in rows[part].values()]
    starts = tuple(address.partition("{version}")[0] for address in known)
    assert [address for address in public_addresses() if not address.startswith(starts)] == []
