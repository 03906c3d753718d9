"""Container images in Docker's store on the model machine, and images from tarballs with both runtimes."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from imagegen.oci.tarball import read_image_tarball
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine import docker_store
from imagegen.rehearsal.machine.container_store import open_store
from imagegen.rehearsal.machine.docker_store import DockerStore
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.image_pull import import_tarball
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.network.registries import make_image, make_tarball
from imagegen.steps.image_name import ImageName
from tests.rehearsal.machine.image_support import (
    CRICTL,
    CTR,
    DOCKER,
    LOCKED,
    OTHER,
    PAUSE,
    docker_image,
    install_containerd,
    install_docker,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench, Fields

APP = "registry.example.com/app:1"
TARBALL = make_tarball(ImageName.parse(APP))


@pytest.fixture
def docker(bench: Bench) -> Bench:
    install_docker(bench.machine)
    return bench


def test_docker_names_an_image_as_its_users_do(docker: Bench) -> None:
    docker.bundle({"phase-1": [("image", docker_image())]})
    assert docker.run("all", "-Check").exit_code == 5
    docker.done("phase-1")
    locked = LOCKED[OTHER]
    store = DockerStore(docker.machine)
    assert store.ids() == {"nginx:1": locked.config, f"nginx@{locked.manifest}": locked.config}
    assert store.has_layers(locked.layers)
    assert docker.kept("report.json")["resources"][0]["facts"] == {"digest": locked.config}
    assert docker.run("all", "-Check").exit_code == 0


def test_a_digest_in_the_config_is_the_images_only_name(docker: Bench) -> None:
    """Docker gives no image another digest for a name, and chooses from an index itself."""
    locked = LOCKED[OTHER]
    name = f"docker.io/library/nginx@{locked.digest}"
    docker.bundle({"phase-1": [("image", {**docker_image(), "name": name, "reference": name})]})
    docker.done("phase-1")
    assert DockerStore(docker.machine).ids() == {f"nginx@{locked.digest}": locked.config}
    with pytest.raises(RefusedByWindows, match="refusing to create a tag with a digest"):
        docker_store.tag(docker.machine, name, f"docker.io/library/nginx@{locked.manifest}")


SPOILED: list[tuple[Callable[[Machine], object], str]] = [
    (lambda machine: DockerStore(machine).forget_image("nginx:1"), f"there is no image {OTHER}"),
    (
        lambda machine: DockerStore(machine).name_image("nginx:1", LOCKED[PAUSE].config),
        f"digest is {LOCKED[PAUSE].config}",
    ),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILED, ids=[reason for _, reason in SPOILED])
def test_a_spoiled_image_is_found_and_mended(docker: Bench, spoil: Callable[[Machine], object], reason: str) -> None:
    docker.bundle({"phase-1": [("image", docker_image())]})
    docker.done("phase-1")
    spoil(docker.machine)
    outcome = docker.run("phase-1", "-Check")
    assert (outcome.exit_code, reason in docker.events(outcome, "resource")[0]["reason"]) == (5, True)
    docker.done("phase-1")
    assert docker.run("phase-1", "-Check").exit_code == 0


REFUSALS: list[tuple[Callable[[Machine], object], str]] = [
    (lambda machine: machine.files.remove(DOCKER), f"cannot find {DOCKER}"),
    (lambda machine: machine.services.stop("docker"), "docker.exe ended with 1: error during connect"),
    (lambda machine: vars(machine).update(browse=lambda *_: (200, {}, b"{}")), "unexpected commit digest"),
]


@pytest.mark.parametrize(("spoil", "reason"), REFUSALS, ids=[reason for _, reason in REFUSALS])
def test_what_keeps_docker_from_pulling_is_named(
    docker: Bench, spoil: Callable[[Machine], object], reason: str
) -> None:
    docker.bundle({"phase-1": [("image", docker_image())]})
    spoil(docker.machine)
    outcome = docker.run("phase-1")
    assert (outcome.exit_code, reason in docker.events(outcome, "resource")[0]["reason"]) == (6, True)


def test_docker_runs_no_newer_windows(docker: Bench) -> None:
    name = ImageName.parse(APP)
    *_, config, _, _ = make_image(name, [("windows", "10.0.26100.1")])
    tarball = _tar({"manifest.json": _listed("c", "l"), "c": config.data, "l": b""})
    docker.machine.files.write(r"C:\image", tarball)
    with pytest.raises(RefusedByWindows, match=r"10\.0\.26100\.1-based image is incompatible with a 20348 host"):
        docker_store.load(docker.machine, r"C:\image")


def _listed(config: str, *layers: str) -> bytes:
    return json.dumps([{"Config": config, "RepoTags": [APP], "Layers": layers}]).encode()


def _tar(members: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, BytesIO(data))
    return buffer.getvalue()


def imported(folder: Path, *, docker: bool) -> Fields:
    (folder / "tarball").write_bytes(TARBALL)
    found = read_image_tarball(folder / "tarball", "tar", "app")[APP]
    [variant] = found.variants
    runtime = {"docker": DOCKER} if docker else {"ctr": CTR, "crictl": CRICTL}
    digest = variant.config if docker else found.digest
    return {"name": APP, "artifact": "app", "digest": digest, "layers": variant.layers, "size": variant.size, **runtime}


@pytest.mark.parametrize("with_docker", [True, False], ids=["docker", "containerd"])
def test_a_tarball_is_imported_without_a_registry(bench: Bench, tmp_path: Path, with_docker: bool) -> None:
    (install_docker if with_docker else install_containerd)(bench.machine)
    bench.machine.browse = lambda *_: (503, {}, b"")
    bench.artifact("app", TARBALL)
    fields = imported(tmp_path, docker=with_docker)
    bench.bundle({"phase-1": [("image", fields)]})
    bench.done("phase-1")
    assert bench.kept("report.json")["resources"][0]["facts"]["digest"] == fields["digest"]
    assert bench.run("all", "-Check").exit_code == 0
    if not with_docker:
        # `ctr` keeps the layers, whatever containerd's settings for Kubernetes say of pulled images.
        layers = [blob.digest for blob in make_image(ImageName.parse(APP), [("windows", "")])[:2]]
        assert [open_store(bench.machine).has(layer) for layer in layers] == [True, True]


@pytest.mark.parametrize("with_docker", [True, False], ids=["docker", "containerd"])
def test_a_tarball_with_another_image_is_found_out(bench: Bench, tmp_path: Path, with_docker: bool) -> None:
    """What was imported is looked at, not what the tarball promised."""
    (install_docker if with_docker else install_containerd)(bench.machine)
    bench.artifact("app", make_tarball(ImageName.parse("registry.example.com/other:1")))
    bench.bundle({"phase-1": [("image", imported(tmp_path, docker=with_docker))]})
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert f"not as planned after it was set: there is no image {APP}" in outcome.output


@pytest.mark.parametrize("is_there", [True, False])
def test_the_runtime_of_a_tarball_comes_in_the_same_phase(bench: Bench, tmp_path: Path, is_there: bool) -> None:
    """The engine looks at what needs a download before it sets anything. An image that it cannot look at is fetched."""
    install_docker(bench.machine)
    bench.machine.services.stop("docker")
    bench.artifact("app", TARBALL)
    bench.bundle({"phase-1": [("image", imported(tmp_path, docker=True))]})
    if not is_there:
        bench.machine.files.remove(DOCKER)
    checked = bench.run("all", "-Check")
    assert (checked.exit_code, '"drifted":0' in checked.output) == (6, True)
    assert "it could not be looked at: " in checked.output
    outcome = bench.run("phase-1")
    assert [event["status"] for event in bench.events(outcome, "artifact")] == ["fetching", "ready"]
    assert (outcome.exit_code, "it could not be looked at: " in outcome.output) == (6, True)


def test_a_damaged_tarball_is_refused(docker: Bench) -> None:
    layer = gzip.compress(b"other")
    config = json.dumps({"os": "windows", "architecture": "amd64", "rootfs": {"diff_ids": [_digest(b"own")]}}).encode()
    files = docker.machine.files
    for data, reason in (
        (_tar({"manifest.json": _listed("c", "l"), "c": config, "l": layer}), "layer verification failed"),
        (_tar({"index.json": b"{}"}), "manifest.json"),
    ):
        files.write(r"C:\image", data)
        with pytest.raises(RefusedByWindows, match=reason):
            docker_store.load(docker.machine, r"C:\image")
    assert not files.exists(parent(DockerStore(docker.machine).config_path(_digest(config))))


def test_containerd_needs_a_layout(bench: Bench) -> None:
    install_containerd(bench.machine)
    bench.machine.files.write(r"C:\image", _tar({"manifest.json": b"[]"}))
    with pytest.raises(UnknownCommandError, match="without oci-layout"):
        import_tarball(bench.machine, r"C:\image")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
