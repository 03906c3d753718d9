"""A mirror in a folder, filled from a lock; and a build in a network whose only host of downloads serves it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.artifacts.lock import read_lock
from imagegen.build import process
from imagegen.errors import ExitCode
from tests.conftest import load_today
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
    "kubernetes": {"version": "1.36.2"},
    "targets": {"aws": {"region": "us-east-1", "network": {"allowed_cidrs": ["198.51.100.0/24"]}}},
}
RUNTIMES: dict[str, dict[str, Any]] = {
    "containerd": {"runtime": {"containerd": {"version": "2.3.4"}}},
    "docker": {"runtime": {"docker": {"version": "28.5.1", "cri_dockerd": "0.3.20"}}, "kube_proxy": "none"},
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
    assert second["image_tarballs"] == first["image_tarballs"]
    return dict(first)


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
def test_a_closed_network_builds_from_its_mirror(runtime: str, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    config = _write(tmp_path / "open.yaml", CONFIG, RUNTIMES[runtime], OPEN)
    filled = _fill(config, mirror, tmp_path)
    lock = read_lock(config.with_name("open.lock.json"))
    assert lock is not None
    assert set(filled["copied"].values()) == {one.size for one in lock.artifacts.values()}
    assert sorted(filled["copied_images"]) == sorted(lock.images)
    assert filled["own_urls"] == {"executables[0].url": "own.example.com/tool.exe"}

    closed = _write(
        tmp_path / "closed.yaml",
        {
            "extends": "open.yaml",
            "images": [],
            "registry_credentials": [],
            "artifacts": {"mirror": MIRROR, "allowed_hosts": ["mirror.example.com"]},
            "executables": [
                {"url": f"{MIRROR}/{filled['own_urls']['executables[0].url']}", "path": "C:\\tools\\tool.exe"}
            ],
            "image_tarballs": filled["image_tarballs"],
        },
    )
    setup = dataclasses.replace(setup_of("aws", tmp_path / "out", load_today(closed)), artifacts=_served(mirror))
    assert setup.images == []
    # As the operator guide says: the new lock begins with the old one.
    shutil.copy(config.with_name("open.lock.json"), closed.with_name("closed.lock.json"))
    _refuse_other_bytes(closed, setup, tmp_path)
    with sandbox_of(setup, tmp_path) as sandbox:
        words = ("build", closed, "--target", "aws", "--no-publish", "--out", tmp_path / "out")
        done = _run(sandbox, tmp_path, *words)
        assert (sandbox.faults, done.returncode) == ([], ExitCode.OK), done.stderr
        assert sandbox.missing == []
        hosts = {entry.host for entry in sandbox.network.journal if not entry.host[0].isdigit()}
    downloads = {host for host in hosts if not host.endswith(".amazonaws.com")}
    assert downloads == {"mirror.example.com"}
