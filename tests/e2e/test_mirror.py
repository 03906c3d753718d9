"""A mirror in a folder, filled from a lock; and a build in a network whose only host of downloads serves it."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any, cast

import pytest
from ruamel.yaml import YAML

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.fetch.lock import read_lock
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.booted import Image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.network.registries import make_image
from imagegen.steps.image_name import ImageName
from tests.conftest import REPOSITORY, load_today
from tests.e2e.rehearsal_support import DEADLINE_S, imagegen, sandbox_of, setup_of, user_environ

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.rehearsal.sandbox import Sandbox, SandboxSetup

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

MIRROR = "https://mirror.example.com/files"
IMAGES = ["mcr.microsoft.com/windows/nanoserver:ltsc2022", "library/nginx", "registry.example.com/team/app:1"]
CONFIG: dict[str, Any] = {
    "name": "mirrored",
    "windows": {"release": "2022"},
    "kubernetes": {"version": "1.36.4"},
    "targets": {"aws": {"region": "us-east-1", "network": {"allowed_cidrs": ["198.51.100.0/24"]}}},
}
RUNTIMES: dict[str, dict[str, Any]] = {
    "containerd": {"runtime": {"containerd": {"version": "2.3.4"}}},
    "docker": {"runtime": {"docker": {"version": "28.5.1", "cri_dockerd": "0.3.20"}}, "kube_proxy": "none"},
}
BY_DIGEST = f"registry.example.com/team/app@{make_image(ImageName.parse(IMAGES[-1]))[-1].digest}"
AZURE: dict[str, Any] = {
    "artifacts": {"mirror": MIRROR},
    "targets": {
        "azure": {
            "location": "eastus2",
            "network": {"allowed_cidrs": ["198.51.100.0/24"]},
            "gallery": {"resource_group": "images", "name": "images", "definition": "windows"},
        }
    },
}
OPEN = {
    "images": IMAGES,
    "executables": [{"url": "https://own.example.com/tool.exe", "path": "C:\\tools\\tool.exe"}],
    "registry_credentials": [
        {"registry": "registry.example.com", "username_env": "REGISTRY_USERNAME", "password_env": "REGISTRY_PASSWORD"}
    ],
}


def _run(sandbox: Sandbox, folder: Path, *words: str | Path) -> process.Completed:
    """Run imagegen in a network. Each has a cache of downloads of its own."""
    environ = sandbox.child_environ(user_environ(folder))
    return process.run(imagegen(*words), environ=environ, cwd=folder, timeout=DEADLINE_S)


def _write(file: Path, *parts: Mapping[str, Any]) -> Path:
    # JSON is YAML.
    file.write_text(json.dumps({key: value for part in parts for key, value in part.items()}))
    return file


def _served(folder: Path) -> dict[str, bytes]:
    """The files of a mirror by the URL at which a web server has them."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {f"{MIRROR}/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in files}


def _fill(config: Path, mirror: Path, folder: Path) -> dict[str, Any]:
    """Lock a config and fill a mirror in a network that has everything; three times, to see what is kept."""
    words = ("artifacts", "mirror", config, "--to", mirror, "--url", MIRROR, "--format", "json")
    with sandbox_of(setup_of("aws", folder, load_today(config)), folder) as sandbox:
        assert _run(sandbox, folder, "lock", config).returncode == ExitCode.OK
        planned = _run(sandbox, folder, *words, "--dry-run")
        assert planned.returncode == ExitCode.OK, planned.stderr
        assert not mirror.exists()
        done = _run(sandbox, folder, *words)
        assert (sandbox.faults, done.returncode) == ([], ExitCode.OK), done.stderr
        asked = len(sandbox.network.journal)
        again = _run(sandbox, folder, *words)
        assert again.returncode == ExitCode.OK, again.stderr
        # A complete mirror needs no request at all.
        assert len(sandbox.network.journal) == asked
    first, second = json.loads(done.stdout), json.loads(again.stdout)
    assert json.loads(planned.stdout)["copied"] == first["copied"]
    assert (second["copied"], second["copied_images"]) == ({}, [])
    assert (second["kept"], second["kept_images"]) == (first["copied"], first["copied_images"])
    return dict(first)


def _closed(folder: Path, own_urls: Mapping[str, str]) -> Path:
    """The config for the closed network, with the lock that was made outside."""
    (folder / "closed.lock.json").write_bytes((folder / "open.lock.json").read_bytes())
    given = YAML(typ="safe").load(REPOSITORY / "tests" / "rules" / "download-ca-valid.yml")
    (folder / "ca.pem").write_text(given["files"]["files/present.pem"])
    return _write(
        folder / "closed.yaml",
        {
            "extends": "open.yaml",
            "artifacts": {"mirror": MIRROR, "allowed_hosts": ["mirror.example.com"], "ca": ["ca.pem"]},
            "executables": [{"url": f"{MIRROR}/{own_urls['executables[0].url']}", "path": "C:\\tools\\tool.exe"}],
        },
    )


def _refuse_other_bytes(closed: Path, setup: SandboxSetup, folder: Path) -> None:
    """A mirror that serves another file, with a lock that knows the published one. No digest of it is published."""
    lock = read_lock(closed.with_name("closed.lock.json"))
    assert lock is not None
    public = lock.artifacts["cloudbase-init"].url
    place = f"{MIRROR}/{public.removeprefix('https://')}"
    changed = dataclasses.replace(setup, artifacts={**setup.artifacts, place: setup.artifacts[place] + b"x"})
    with sandbox_of(changed, folder) as sandbox:
        refused = _run(sandbox, folder, "lock", closed)
    assert refused.returncode == ExitCode.VERIFICATION, refused.stderr
    assert f"cloudbase-init: {place} has other bytes than {public}, which is locked: sha256" in refused.stderr


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_closed_network_builds_and_boots_from_its_mirror(runtime: str, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    # Docker imports no image under a name with a digest.
    images = {"images": [*IMAGES, BY_DIGEST]} if runtime == "containerd" else {}
    config = _write(tmp_path / "open.yaml", CONFIG, RUNTIMES[runtime], OPEN, images)
    filled = _fill(config, mirror, tmp_path)
    lock = read_lock(config.with_name("open.lock.json"))
    assert lock is not None
    assert set(filled["copied"].values()) == {one.size for one in lock.artifacts.values()}
    assert sorted(filled["copied_images"]) == sorted(lock.images)
    assert filled["own_urls"] == {"executables[0].url": "own.example.com/tool.exe"}

    closed = _closed(tmp_path, filled["own_urls"])
    loaded = load_today(closed)
    setup = dataclasses.replace(setup_of("aws", tmp_path / "out", loaded), artifacts=_served(mirror))
    assert (setup.images, setup.mirrors, setup.registry_credentials) == ([], [], {})
    _refuse_other_bytes(closed, setup, tmp_path)
    with sandbox_of(setup, tmp_path) as sandbox:
        words = ("build", closed, "--target", "aws", "--no-publish", "--out", tmp_path / "out", "--format", "json")
        done = _run(sandbox, tmp_path, *words)
        assert (sandbox.faults, done.returncode) == ([], ExitCode.OK), done.stderr
        assert sandbox.missing == []
        hosts = {entry.host for entry in sandbox.network.journal if not entry.host[0].isdigit()}
        assert sandbox.captured is not None
        image = Image(sandbox.captured, loaded.specs["aws"])
    downloads = {host for host in hosts if not host.endswith(".amazonaws.com")}
    assert downloads == {"mirror.example.com"}
    # The lock that came from outside holds: its images are what a registry has.
    inside = read_lock(closed.with_name("closed.lock.json"))
    assert inside is not None
    assert {name: one.model_copy(update={"index": None}) for name, one in inside.images.items()} == lock.images
    # The authority of the sandbox has the place of the public ones.
    assert inside.ca_hosts == {"mirror.example.com": False}
    manifest = json.loads(done.stdout)
    assert {*manifest["inputs"]["images"]} == {*lock.images}
    booted = boot_image(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert "images" in cast("list[str]", booted.record()["passed"])


def test_a_rehearsal_has_the_images_of_the_mirror(tmp_path: Path) -> None:
    config = _write(tmp_path / "closed.yaml", CONFIG, RUNTIMES["containerd"], AZURE, {"images": IMAGES})
    words = imagegen("build", config, "--target", "azure", "--rehearse", "--out", tmp_path / "out", "--format", "json")
    done = process.run(words, environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    assert "images" in manifest["notes"]["rehearsal"]["boot"]["passed"]
    [file] = (tmp_path / "out").rglob("lock.json")
    lock = json.loads(file.read_text())
    # The machine imports the manifest. The lock has the digest that a registry gives, too.
    assert manifest["inputs"]["images"] == {name: row["manifest"] for name, row in lock["images"].items()}
    assert len(lock["images"]) == len(IMAGES) + 1


def test_an_image_that_the_mirror_lacks_or_has_altered_is_refused(tmp_path: Path) -> None:
    """What it serves is whole and valid, with digests of its own: only the lock tells."""
    config = _write(tmp_path / "open.yaml", CONFIG, RUNTIMES["containerd"], OPEN)
    mirror = tmp_path / "mirror"
    filled = _fill(config, mirror, tmp_path)
    closed = _closed(tmp_path, filled["own_urls"])
    [nginx] = (mirror / "oci" / "docker.io" / "library" / "nginx").glob("latest-*.tar")
    [app] = (mirror / "oci" / "registry.example.com" / "team" / "app").glob("1-*.tar")
    nginx.write_bytes(app.read_bytes())
    setup = dataclasses.replace(setup_of("aws", tmp_path / "out", load_today(closed)), artifacts=_served(mirror))
    with sandbox_of(setup, tmp_path) as sandbox:
        altered = _run(sandbox, tmp_path, "lock", closed)
        absent = _run(sandbox, tmp_path, "lock", closed, "--set", "images=[registry.example.com/other:1]")
        hosts = {entry.host for entry in sandbox.network.journal}
    assert altered.returncode == ExitCode.VERIFICATION
    assert "has the images registry.example.com/team/app:1 in place of docker.io/library/nginx:latest" in altered.stderr
    assert absent.returncode == ExitCode.USAGE
    assert f"the mirror {MIRROR} has no registry.example.com/other:1 for Windows build 20348" in absent.stderr
    assert "`imagegen artifacts mirror CONFIG --to MIRROR`" in absent.stderr
    assert "registry.example.com" not in hosts
    assert (tmp_path / "closed.lock.json").read_bytes() == (tmp_path / "open.lock.json").read_bytes()
