"""What a lock says about the container images of a tarball, and which tarballs are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import VerificationError
from imagegen.oci.names import ImageRequest, chain_id
from imagegen.oci.tarball import read_image_tarball
from imagegen.rehearsal.network.registries import make_tarball
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from imagegen.oci.tarball import TarballImage

NAME = "registry.example.com/app:1"
REQUEST = ImageRequest(ImageName.parse(NAME), (26100, 20348), ())
DIFF = "sha256:" + "1" * 64


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Saved:
    """A tarball in the making, with an image for each version of Windows."""

    def __init__(self, *versions: str, os: str = "windows", name: str = NAME) -> None:
        self.members: dict[str, bytes] = {"oci-layout": b"{}"}
        self.configs = [self.blob({"os": os, "architecture": "amd64", "os.version": one, **ROOTFS}) for one in versions]
        rows = [
            {"digest": self.blob({"config": {"digest": one}, "layers": [{"digest": DIFF, "size": 7}]})}
            for one in self.configs
        ]
        # As of a platform that was not exported.
        self.top = self.blob({"manifests": [*rows, {"digest": DIFF}]})
        self.write(
            "index.json", {"manifests": [{"digest": self.top, "annotations": {"io.containerd.image.name": name}}]}
        )

    def write(self, path: str, document: object) -> None:
        self.members[path] = json.dumps(document).encode()

    def blob(self, document: object) -> str:
        data = json.dumps(document).encode()
        self.members[f"blobs/sha256/{digest_of(data)[7:]}"] = data
        return digest_of(data)

    def as_docker(self, *, with_layout: bool, names: Sequence[str] = (NAME,)) -> None:
        """As `docker save` writes it: the oldest versions have no layout."""
        self.members["layer.tar"] = b"12345"
        config = f"blobs/sha256/{self.configs[0][7:]}"
        self.write("manifest.json", [{"Config": config, "RepoTags": [*names], "Layers": ["layer.tar"]}])
        if not with_layout:
            del self.members["oci-layout"]

    def read(self, folder: Path, *, packed: bool = False) -> dict[str, TarballImage]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, data in self.members.items():
                entry = tarfile.TarInfo(f"./{path}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        file = folder / "image"
        file.write_bytes(gzip.compress(buffer.getvalue()) if packed else buffer.getvalue())
        return read_image_tarball(file, "tar.gz" if packed else "tar", "image-tarball-1")


ROOTFS: dict[str, Any] = {"rootfs": {"diff_ids": [DIFF]}}


@pytest.mark.parametrize("packed", [True, False])
def test_an_export_of_containerd_has_an_index_of_its_builds(tmp_path: Path, packed: bool) -> None:
    saved = Saved("10.0.20348.1", "10.0.20348.2", "10.0.17763.9")
    found = saved.read(tmp_path, packed=packed)[NAME]
    chosen = found.choose(REQUEST)
    assert chosen is not None
    assert (found.digest, chosen.config, chosen.docker) == (saved.top, saved.configs[1], False)
    assert (chosen.os_version, chosen.layers, chosen.size) == ("10.0.20348.2", chain_id([DIFF]), 7)


@pytest.mark.parametrize("with_layout", [True, False])
def test_docker_reads_its_own_list(tmp_path: Path, with_layout: bool) -> None:
    saved = Saved("10.0.20348.1")
    saved.as_docker(with_layout=with_layout)
    found = saved.read(tmp_path)[NAME]
    [variant] = found.variants
    assert (found.digest, variant.config, variant.docker) == (
        saved.top if with_layout else None,
        saved.configs[0],
        True,
    )
    assert variant.size == 5


def test_the_stand_in_of_a_rehearsal_is_such_a_tarball(tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(make_tarball(ImageName.parse("library/nginx")))
    [(name, found)] = read_image_tarball(file, "tar", "x").items()
    assert (name, found.digest is None) == ("docker.io/library/nginx:latest", False)
    assert [(one.os_version, one.docker) for one in found.variants] == [("", True)]


def test_an_image_for_other_machines_is_not_chosen(tmp_path: Path) -> None:
    assert Saved("10.0.17763.1").read(tmp_path)[NAME].choose(REQUEST) is None
    assert Saved("", os="linux").read(tmp_path) == {}


def test_an_index_that_lists_one_image_many_times_has_it_once(tmp_path: Path) -> None:
    saved = Saved("10.0.20348.1")
    for _ in range(3):
        saved.top = saved.blob({"manifests": [{"digest": saved.top}] * 10})
    saved.write("index.json", {"manifests": [{"digest": saved.top, "annotations": {"io.containerd.image.name": NAME}}]})
    assert len(saved.read(tmp_path)[NAME].variants) == 1


def _damage(saved: Saved) -> None:
    saved.members[f"blobs/sha256/{saved.configs[0][7:]}"] += b" "


SPOILED: dict[str, Callable[[Saved], object]] = {
    "another digest": _damage,
    "'index.json'": lambda saved: saved.members.pop("index.json"),
    "not valid": lambda saved: saved.write("index.json", {"manifests": [{"annotations": 1}]}),
    "has an image that is not valid": lambda saved: saved.write("manifest.json", [{"Config": "none"}]),
    "at most 100 items": lambda saved: saved.as_docker(with_layout=True, names=[f"a.test/{at}:1" for at in range(101)]),
    "'Registry.EXAMPLE.com/a:1' is not a valid name": lambda saved: saved.as_docker(
        with_layout=True, names=["Registry.EXAMPLE.com/a:1"]
    ),
    "'a.test/b:one tag' is not a valid name": lambda saved: saved.as_docker(
        with_layout=False, names=["a.test/b:one tag"]
    ),
}


@pytest.mark.parametrize("reason", SPOILED)
def test_a_tarball_that_is_not_valid_is_refused(tmp_path: Path, reason: str) -> None:
    saved = Saved("10.0.20348.1")
    SPOILED[reason](saved)
    with pytest.raises(VerificationError, match=reason):
        saved.read(tmp_path)


def test_members_with_one_name_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagegen.oci.tarball.LIMIT_MEMBERS", 3)
    header = tarfile.TarInfo("a").tobuf()
    (tmp_path / "three").write_bytes(header * 3 + bytes(1024))
    (tmp_path / "four").write_bytes(header * 4 + bytes(1024))
    assert read_image_tarball(tmp_path / "three", "tar", "image-tarball-1") == {}
    with pytest.raises(VerificationError, match="too many documents"):
        read_image_tarball(tmp_path / "four", "tar", "image-tarball-1")


def test_a_tarball_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagegen.oci.tarball._ALL_DOCUMENTS", 400)
    with pytest.raises(VerificationError, match="too many documents"):
        Saved("10.0.20348.1", "10.0.17763.9").read(tmp_path)
    (tmp_path / "page").write_bytes(b"<html>")
    with pytest.raises(VerificationError, match="cannot be read as a tarball"):
        read_image_tarball(tmp_path / "page", "tar", "image-tarball-1")
