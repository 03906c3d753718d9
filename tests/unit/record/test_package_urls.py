"""Package URLs: the catalogue knows the releases that the steps download, and bytes from elsewhere are not theirs."""

from __future__ import annotations

from typing import Any

import pytest

from imagegen.catalog.facts import table
from imagegen.record.manifest import RecordedArtifact
from imagegen.record.sbom import artifact_purl, find_release, image_purl

SHA = "ab" * 32


def artifact(url: str, release: str | None = None) -> RecordedArtifact:
    return RecordedArtifact(url=url, sha256=SHA, size=1, release=release)


def releases() -> list[str]:
    """Every address of a release that the catalogue lists."""
    tables: dict[str, dict[str, dict[str, Any]]] = {
        part: table("releases")[part] for part in ("archives", "folders", "packages")
    }
    rows = [row for part in tables.values() for row in part.values()]
    return [f"{row['address']}/{row.get('file', 'a.exe')}" for row in rows]


@pytest.mark.parametrize("address", sorted(set(releases())))
def test_the_maker_of_every_release_is_known(address: str) -> None:
    known = artifact(address.replace("{version}", "1.2.3").replace("{version_with_underscores}", "1_2_3"))
    found = find_release(known)
    assert found is not None
    assert str(artifact_purl("name", known)) == found.purl
    assert "1.2.3" in found.version
    assert found.version in found.purl
    assert found.supplier
    assert found.licence


@pytest.mark.parametrize(
    ("url", "purl"),
    [
        (
            "https://github.com/containerd/containerd/releases/download/v2.3.4/containerd-2.3.4-windows-amd64.tar.gz",
            "pkg:github/containerd/containerd@v2.3.4",
        ),
        ("https://dl.k8s.io/v1.36.4/kubernetes-node-windows-amd64.tar.gz", "pkg:github/kubernetes/kubernetes@v1.36.4"),
        ("https://dl.k8s.io/release/v1.37.0-rc.1/bin/windows/amd64/kubelet.exe", "kubernetes@v1.37.0-rc.1"),
        (
            "https://raw.githubusercontent.com/microsoft/SDN/242fb0c3190dbb08d7f9406727be18322218e537/Kubernetes/x.ps1",
            "pkg:github/microsoft/sdn@242fb0c3190dbb08d7f9406727be18322218e537",
        ),
        (
            "https://github.com/ovn-kubernetes/ovn-kubernetes/releases/download/v1.2.0/hybrid-overlay-node.exe",
            "pkg:github/ovn-kubernetes/ovn-kubernetes@v1.2.0",
        ),
        ("https://github.com/containerd/containerd/releases/download/2.3.4/x.tar.gz", "pkg:generic/name?checksum="),
        ("https://evil.example.com/containerd/releases/download/v2.3.4/x.tar.gz", "pkg:generic/name?checksum="),
        ("https://evil.example.com/dl.k8s.io/v1.36.4/x", "pkg:generic/name?checksum="),
    ],
)
def test_an_address_names_the_release(url: str, purl: str) -> None:
    assert purl in str(artifact_purl("name", artifact(url)))


PUBLIC = "https://dl.k8s.io/release/v1.36.4/bin/windows/amd64/kubelet.exe"


def test_a_mirror_has_the_public_bytes_and_an_override_has_its_own() -> None:
    mirrored = artifact("https://mirror.example.com/a/dl.k8s.io/release/v1.36.4/bin/windows/amd64/kubelet.exe", PUBLIC)
    assert str(artifact_purl("kubelet", mirrored)) == "pkg:github/kubernetes/kubernetes@v1.36.4"
    own = artifact_purl("kubelet", artifact("https://own.example.com/kubelet.exe", PUBLIC))
    assert (own.type, own.name, own.version) == ("generic", "kubelet", "1.36.4")
    assert own.qualifiers == {"checksum": f"sha256:{SHA}", "download_url": "https://own.example.com/kubelet.exe"}


@pytest.mark.parametrize(
    ("name", "purl"),
    [
        ("registry.k8s.io/pause:3.10", f"pkg:oci/pause@sha256:{SHA}?repository_url=registry.k8s.io/pause&tag=3.10"),
        ("docker.io/library/nginx:1", f"pkg:oci/nginx@sha256:{SHA}?repository_url=docker.io/library/nginx&tag=1"),
        (
            f"r.example.com:5000/a/B@sha256:{SHA}",
            f"pkg:oci/b@sha256:{SHA}?repository_url=r.example.com:5000/a/B",
        ),
    ],
)
def test_a_container_image_is_named_by_its_digest(name: str, purl: str) -> None:
    assert str(image_purl(name, f"sha256:{SHA}")) == purl
