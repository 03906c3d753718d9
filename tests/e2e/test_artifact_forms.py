"""An archive whose URL has no ending, from a repository such as Artifactory; and a web page in its place."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from imagegen.build import process
from imagegen.errors import ExitCode
from tests.conftest import load_today
from tests.e2e.rehearsal_support import CONFIG, DEADLINE_S, imagegen, sandbox_of, setup_of, user_environ

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

DOWNLOAD = "https://repo.example/artifactory/c/download"
OVERRIDE = f"overrides.containerd_url={DOWNLOAD}"
SIGN_IN = b"<!DOCTYPE html>\n<html><title>Sign in</title></html>\n"


def test_an_archive_needs_no_ending(tmp_path: Path) -> None:
    words = imagegen("build", CONFIG, "--target", "aws", "--rehearse", "--set", OVERRIDE, "--out", tmp_path / "out")
    environ = user_environ(tmp_path)
    done = process.run([*words, "--format", "json"], environ=environ, cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["inputs"]["artifacts"]["containerd"]["url"] == DOWNLOAD
    unpacked = [item for item in manifest["report"]["resources"] if item["id"] == "containerd/archive:containerd"]
    assert [sorted(item["facts"]["members"]) for item in unpacked] == [
        ["containerd-shim-runhcs-v1.exe", "containerd.exe", "ctr.exe"]
    ]


def test_a_web_page_is_no_archive(tmp_path: Path) -> None:
    setup = setup_of("aws", tmp_path, load_today(CONFIG, OVERRIDE))
    assert DOWNLOAD in setup.artifacts
    changed = dataclasses.replace(setup, artifacts={**setup.artifacts, DOWNLOAD: SIGN_IN})
    words = imagegen("lock", CONFIG, "--target", "aws", "--set", OVERRIDE, "--lock", tmp_path / "lock.json")
    with sandbox_of(changed, tmp_path) as sandbox:
        environ = sandbox.child_environ(user_environ(tmp_path))
        done = process.run(words, environ=environ, cwd=tmp_path, timeout=DEADLINE_S)
        assert sandbox.faults == []
    assert done.returncode == ExitCode.VERIFICATION
    assert f"containerd: {DOWNLOAD} is a web page, not an archive (.zip, .tar.gz or .tar)" in done.stderr
    assert "hint: a login page or a web filter answered" in done.stderr
    assert not (tmp_path / "lock.json").exists()
