"""Package URLs: the catalogue knows the releases that the steps download, and bytes from elsewhere are not theirs."""

from __future__ import annotations

import pytest

from imagegen.catalog.products import find_products
from imagegen.record.manifest import RecordedArtifact
from imagegen.record.sbom import artifact_purl, find_release, image_purl

SHA = "ab" * 32


def artifact(
    url: str, release: str | None = None, product: str | None = None, version: str = "1.2.3"
) -> RecordedArtifact:
    return RecordedArtifact(url=url, sha256=SHA, size=1, release=release, product=product, version=version)


@pytest.mark.parametrize("product", [product.name for product in find_products()])
def test_the_maker_of_every_release_is_known(product: str) -> None:
    known = artifact("https://public.example/a.zip", product=product)
    found = find_release(known)
    assert found is not None
    assert str(artifact_purl("name", known)) == found.purl
    assert (found.version, "1.2.3" in found.purl) == ("1.2.3", True)
    assert found.supplier
    assert found.licence


PUBLIC = "https://dl.k8s.io/release/v1.36.4/bin/windows/amd64/kubelet.exe"
RELEASE = {"product": "kubernetes", "version": "1.36.4"}


def test_a_mirror_has_the_public_bytes_and_an_override_has_its_own() -> None:
    url = "https://mirror.example.com/a/dl.k8s.io/release/v1.36.4/bin/windows/amd64/kubelet.exe"
    mirrored = artifact(url, PUBLIC, **RELEASE)
    assert str(artifact_purl("kubelet", mirrored)) == "pkg:github/kubernetes/kubernetes@v1.36.4"
    own = artifact_purl("kubelet", artifact("https://own.example.com/kubelet.exe", PUBLIC, **RELEASE))
    assert (own.type, own.name, own.version) == ("generic", "kubelet", "1.36.4")
    assert own.qualifiers == {"checksum": f"sha256:{SHA}", "download_url": "https://own.example.com/kubelet.exe"}


def test_an_artifact_without_a_product_is_a_generic_package() -> None:
    """One of the config, or of an older manifest. Nothing is concluded from its URL."""
    assert find_release(artifact(PUBLIC)) is None
    assert artifact_purl("kubelet", artifact(PUBLIC)).type == "generic"


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
