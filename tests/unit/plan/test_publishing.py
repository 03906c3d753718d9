"""Where the digests of public artifacts are, by the row of their product."""

from __future__ import annotations

import pytest

from imagegen.catalog.facts import table
from imagegen.fetch.policy import with_publishing
from imagegen.fetch.request import ArtifactRequest, PublishedDigest

URL = "https://public.example/releases/file.zip"


def request(product: str, version: str, url: str = URL, *, own: bool = False) -> ArtifactRequest:
    return ArtifactRequest("a", url, None, "file", "overrides.a_url", URL, own=own, product=product, version=version)


@pytest.mark.parametrize(
    ("product", "version", "digest"),
    [
        ("kubernetes", "1.36.4", f"{URL}.sha256"),
        ("kubernetes", "1.37.0-rc.1", f"{URL}.sha256"),
        ("kubernetes", "1.16.0", f"{URL}.sha256"),
        ("kubernetes", "1.15.12", None),
        ("kubernetes-node", "1.36.4", f"{URL}.sha256"),
        ("containerd", "2.3.4", f"{URL}.sha256sum"),
        ("crictl", "1.36.0", f"{URL}.sha256"),
        ("crictl", "1.20.0", None),
        ("flannel-plugin", "1.9.1-flannel1", f"{URL}.sha256"),
        ("calico", "3.31.0", "https://public.example/releases/SHA256SUMS"),
        ("wins", "0.15.0", "https://public.example/releases/sha256.txt"),
        ("wins", "0.0.4", None),
        ("nssm", "2.24", None),
        ("", "1.36.4", None),
    ],
)
def test_where_a_digest_is(product: str, version: str, digest: str | None) -> None:
    expected = PublishedDigest(digest, required=True) if digest else None
    assert with_publishing(request(product, version)).digest == expected
    own = request(product, version, own=True)
    assert with_publishing(own) == own


def test_a_mirror_may_lack_the_digest() -> None:
    mirrored = URL.replace("https://", "https://mirror.example.com/all/")
    found = with_publishing(request("kubernetes", "1.36.4", mirrored))
    assert found.digest == PublishedDigest(f"{mirrored}.sha256", required=False)


@pytest.mark.parametrize(
    ("product", "version", "day"),
    [
        ("kubernetes", "1.36.0", table("kubernetes")["minors"]["1.36"]["released"]),
        ("kubernetes", "1.36.4", ""),
        ("kubernetes", "1.36.0-rc.1", ""),
        ("kubernetes", "1.99.0", ""),
        ("cloudbase-init", "1.1.8", "2026-04-17"),
        ("cloudbase-init", "1.1.0", ""),
        ("containerd", "2.3.4", ""),
    ],
)
def test_the_day_of_a_release_is_that_of_this_version(product: str, version: str, day: str) -> None:
    assert with_publishing(request(product, version)).released == day
