"""Where files are in a mirror: no URL leads out of it, and no two files get in each other's way."""

from __future__ import annotations

import pytest

from imagegen.base.errors import RefusedError
from imagegen.mirror.fill import file_path, reject_overlaps, served_path
from imagegen.oci.names import image_folder, tarball_path
from imagegen.steps.image_name import ImageName

DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://dl.k8s.io/release/v1.36.4/kubelet.exe", "dl.k8s.io/release/v1.36.4/kubelet.exe"),
        ("https://artifacts.example.com:8443/a.zip", "artifacts.example.com:8443/a.zip"),
        ("https://192.0.2.1/a.zip", "192.0.2.1/a.zip"),
        # A web server decodes the path before it looks for the file.
        ("https://h.example/v2.0%2Bbuild/a%20b.zip", "h.example/v2.0+build/a b.zip"),
        ("https://h.example/%C3%BC.zip", "h.example/ü.zip"),
        ("https://h.example/..a/b../...", "h.example/..a/b../..."),
    ],
)
def test_a_file_is_below_its_host(url: str, path: str) -> None:
    assert file_path(url) == path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://artifacts.example.com:8443/a.zip", "artifacts.example.com:8443/a.zip"),
        ("https://h.example/v2.0%2Bbuild/a%20b.zip", "h.example/v2.0+build/a%20b.zip"),
        ("https://h.example/%C3%BC%25.zip", "h.example/%C3%BC%25.zip"),
        ("https://h.example/v1.36.4/", "h.example/v1.36.4"),
        ("https://h.example/%7Bx%7D/{name}/a%20{version}.zip", "h.example/%7Bx%7D/{name}/a%20{version}.zip"),
    ],
)
def test_a_web_server_has_it_at_the_path_of_its_url(url: str, path: str) -> None:
    assert served_path(url) == path


@pytest.mark.parametrize(
    "url",
    [
        "https://h.example/../etc/passwd",
        "https://h.example/a/../../b",
        "https://h.example/a/..",
        "https://h.example/./a",
        "https://h.example/%2e%2e/a",
        "https://h.example/%2E./a",
        "https://h.example/a%2f..%2f..%2fb",
        "https://h.example/a%2Fb",
        "https://h.example/a%5Cb",
        "https://h.example/a\\..\\b",
        "https://h.example/a%00b",
        "https://h.example/a%0Ab",
        "https://h.example/%FF",
        "https://h.example//a",
        "https://h.example/a/",
        "https://h.example/",
        "https://h.example",
        f"https://h.example/{'a' * 256}",
        f"https://h.example/{'%C3%BC' * 128}",
        "https://h.example/a?sig=1",
        "https://h.example/a#b",
        "https://../a",
        "https://./a",
        "https:///a",
        "https://-h/a",
        "https://user@h.example/a",
        "https://[::1]/a",
        "https://index.json/a",
        "https://oci/a",
        "http://h.example/a",
        "file:///etc/passwd",
    ],
)
def test_a_url_that_could_lead_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(RefusedError, match="cannot be in a mirror because of"):
        file_path(url)


def test_an_image_has_a_folder_for_each_manifest_and_a_tarball_for_each_name() -> None:
    name = ImageName.parse("registry.example.com:5000/team/app:1.4")
    assert image_folder(name, DIGEST) == f"oci/registry.example.com:5000/team/app/sha256-{'ab' * 32}"
    assert tarball_path(name, DIGEST) == "oci/registry.example.com:5000/team/app/1.4-abababababab.tar"


def test_a_path_is_not_both_a_file_and_a_folder() -> None:
    reject_overlaps(["h/a", "h/ab", "h/b/c", "h/b.d", "h/b d"])
    with pytest.raises(RefusedError, match="both the file h/b and the file h/b/c below it"):
        reject_overlaps(["h/b/c", "h/b.d", "h/b d", "h/b"])
