"""Container images in a whole rehearsed build: over the private network, from the lock to the manifest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.rehearsal.network.messages import Response
from tests.conftest import load_today
from tests.e2e.rehearsal_support import CONFIG, DEADLINE_S, imagegen, sandbox_of, setup_of, user_environ

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.network.network import Network

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

APP, CORE = "registry.example.com/app:1", "mcr.microsoft.com/windows/servercore:ltsc2022"
SETS = (
    f"images=[{APP}, library/nginx, ghcr.io/team/tool:2]",
    f"windows.container_images=[{CORE}]",
    "runtime.containerd.registry_mirrors={docker.io: ['https://mirror.example.com/hub/']}",
)
SET_OPTIONS = [word for value in SETS for word in ("--set", value)]


def test_the_digests_reach_the_manifest(tmp_path: Path) -> None:
    words = imagegen("build", CONFIG, "--target", "azure", "--rehearse", *SET_OPTIONS, "--out", tmp_path / "out")
    done = process.run([*words, "--format", "json"], environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    images = manifest["inputs"]["images"]
    assert {APP, CORE, "docker.io/library/nginx:latest", "ghcr.io/team/tool:2"} < set(images)
    facts = {
        item["id"].partition(":")[2]: item["facts"]
        for item in manifest["report"]["resources"]
        if item["kind"] == "image"
    }
    assert {name: found["digest"] for name, found in facts.items()} == images
    assert all(found["unpacked"] for found in facts.values())
    assert [name for name, found in facts.items() if found["pinned"]] == ["registry.k8s.io/pause:3.10.2"]
    rehearsal = manifest["notes"]["rehearsal"]
    assert "images" in rehearsal["boot"]["passed"]
    assert any("container images" in line for line in rehearsal["not_checked"])
    [lock] = (tmp_path / "out").rglob("lock.json")
    assert {name: row["digest"] for name, row in json.loads(lock.read_text())["images"].items()} == images


def test_docker_has_images_of_registries_and_tarballs(tmp_path: Path) -> None:
    sets = (
        *("runtime.containerd=null", "runtime.docker={version: 28.5.1, cri_dockerd: 0.3.20}", "kube_proxy=none"),
        f"images=[{APP}]",
        "image_tarballs=[{name: 'library/nginx:1', url: 'https://artifacts.example.com/nginx.tar'}]",
    )
    options = [word for value in sets for word in ("--set", value)]
    words = imagegen("build", CONFIG, "--target", "aws", "--rehearse", *options, "--out", tmp_path / "out")
    done = process.run([*words, "--format", "json"], environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    assert "images" in manifest["notes"]["rehearsal"]["boot"]["passed"]
    [file] = (tmp_path / "out").rglob("lock.json")
    lock = json.loads(file.read_text())
    [nginx] = lock["artifacts"]["image-tarball-1"]["images"].values()
    facts = {item["id"].partition(":")[2]: item["facts"] for item in manifest["report"]["resources"]}
    # By the manifest it was pulled, and Docker's id is the digest of the configuration.
    assert manifest["inputs"]["images"][APP] == lock["images"][APP]["manifest"]
    assert facts[APP] == {"digest": lock["images"][APP]["config"]}
    assert facts["docker.io/library/nginx:1"] == {"digest": nginx["variants"][0]["config"]}
    assert "docker.io/library/nginx:1" not in lock["images"]


def _lock(tmp_path: Path, change: object = None) -> tuple[process.Completed, Network]:
    """`imagegen lock` in a sandbox whose network a test changed."""
    words = imagegen("lock", CONFIG, "--target", "aws", *SET_OPTIONS, "--lock", tmp_path / "lock.json")
    with sandbox_of(setup_of("aws", tmp_path, load_today(CONFIG, *SETS)), tmp_path) as sandbox:
        if callable(change):
            change(sandbox.network)
        environ = sandbox.child_environ(user_environ(tmp_path))
        done = process.run(words, environ=environ, cwd=tmp_path, timeout=DEADLINE_S)
        assert sandbox.faults == []
        return done, sandbox.network


def test_a_lock_asks_mirrors_first_and_sends_tokens_only_where_they_are_wanted(tmp_path: Path) -> None:
    done, network = _lock(tmp_path)
    assert done.returncode == ExitCode.OK, done.stderr
    asked = [entry.host for entry in network.journal]
    assert "registry-1.docker.io" not in asked
    assert {"mirror.example.com", "ghcr.io", "us-west1-docker.pkg.dev"} < set(asked)


def test_a_mirror_that_is_down_is_left_out(tmp_path: Path) -> None:
    done, network = _lock(
        tmp_path, lambda network: network.inject("mirror.example.com", response=Response(404), times=None)
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert {"registry-1.docker.io", "auth.docker.io"} < {entry.host for entry in network.journal}


def test_a_registry_that_demands_credentials_is_refused_by_name(tmp_path: Path) -> None:
    refusal = Response(401, headers=(("WWW-Authenticate", 'Basic realm="registry"'),))
    done, _ = _lock(
        tmp_path, lambda network: network.inject("registry.example.com", "/v2/*", response=refusal, times=None)
    )
    assert done.returncode == ExitCode.USAGE
    assert f"{APP} cannot be pulled: registry.example.com demands credentials" in done.stderr
    assert not (tmp_path / "lock.json").exists()


def test_an_image_with_a_digest_cannot_be_rehearsed(tmp_path: Path) -> None:
    pinned = f"images=['{APP}@sha256:{'0' * 64}']"
    words = imagegen("build", CONFIG, "--target", "aws", "--rehearse", "--set", pinned, "--out", tmp_path / "out")
    done = process.run(words, environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.REFUSED
    assert "images[0]: a rehearsal serves a stand-in for this image" in done.stderr
