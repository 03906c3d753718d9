"""Real versions of cloudbase-init set up a node from the shipped config, and from an image with an older Kubernetes."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.versions import Choice, choose_version
from tests.conftest import load_today
from tests.e2e.boot_support import make_image
from tests.e2e.cloudbase_init_support import VERSIONS, make_runner
from tests.e2e.rehearsal_support import CONFIG, TARGETS
from tests.rehearsal.cloudbase_init.test_certificates import compare_methods
from tests.rehearsal.cloudbase_init.test_interface import differences
from tests.rehearsal.cloudbase_init.test_versions import Heard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Image

pytestmark = pytest.mark.e2e

# kubeadm before 1.31 cannot join as LocalSystem, so cloudbase-init's service runs in an account of its own.
OLDER = ("kubernetes.version=1.30.14", "runtime.containerd.version=1.7.29", "allow_eol=true")
RESPAWNS = "Respawning current process with updated credentials."


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Image]:
    """The captured machine of the shipped config for a target; each boot copies it."""
    return functools.cache(lambda target: make_image(target, tmp_path_factory.mktemp(target)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_comes_up_with_each_version(
    image: Callable[[str], Image], cloudbase_init_cache: Path, tmp_path: Path, version: str, target: str
) -> None:
    booted = boot_image(image(target), make_runner(version, cloudbase_init_cache, tmp_path))
    assert (booted.cloudbase_init, booted.faults) == (version, [])
    assert f"Cloudbase-Init version: {version}" in booted.log


# The fast tests compare the installed version.
@pytest.mark.parametrize("version", ["1.1.4", "1.1.9"])
def test_the_layer_under_each_version_has_its_interface(
    cloudbase_init_cache: Path, tmp_path: Path, version: str
) -> None:
    [modules] = make_runner(version, cloudbase_init_cache, tmp_path).modules
    assert differences(modules / "cloudbaseinit" / "osutils") == []
    compare_methods(modules / "cloudbaseinit")


@pytest.mark.parametrize(("target", "version"), [("aws", "1.1.4"), ("azure", "1.1.9")])
def test_a_service_with_an_account_of_its_own_starts_itself_again(
    cloudbase_init_cache: Path, tmp_path: Path, target: str, version: str
) -> None:
    image = make_image(target, tmp_path / "image", load_today(CONFIG, *OLDER))
    booted = boot_image(image, make_runner(version, cloudbase_init_cache, tmp_path))
    assert (booted.cloudbase_init, booted.faults) == (version, [])
    # At each start, also at the one after the machine's name and at the second boot.
    assert booted.log.count(RESPAWNS) == 3
    assert booted.log.count("Process execution ended with exit code: 0") == 3


# pip has ended and nothing is in its place yet: killed at this moment, a run leaves the most.
_STOPS_AFTER_PIP = """\
import io, os, sys
from imagegen.build import process
from imagegen.base.console import Console
from imagegen.rehearsal.cloudbase_init.versions import choose_version

def run_and_wait(*arguments, **named):
    done = process.run(*arguments, **named)
    print("downloaded", done.returncode, flush=True)
    sys.stdin.read()
    return done

choose_version("1.1.9", environ=os.environ, console=Console(io.StringIO(), plain=True), run=run_and_wait)
"""
_WAIT_S = 120


def test_a_run_that_is_killed_in_its_download_leaves_nothing_to_the_one_that_waits_for_it(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    cache, heard = tmp_path / "imagegen", Heard()
    with (
        concurrent.futures.ThreadPoolExecutor(1) as runs,
        subprocess.Popen(  # noqa: S603 - this Python
            [sys.executable, "-c", _STOPS_AFTER_PIP],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as first,
    ):
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "downloaded 0\n"
            console = Console(heard, plain=True)
            second = runs.submit(choose_version, "1.1.9", environ=environ, console=console)
            assert heard.waits.wait(_WAIT_S)
            [left] = cache.glob(".cloudbase-init-*")
            assert (left / "new" / "cloudbaseinit").is_dir()
        finally:
            first.kill()
        assert second.result(_WAIT_S) == Choice("1.1.9", (cache / "cloudbase-init-1.1.9",))
    assert {path.name for path in cache.iterdir()} == {"cloudbase-init-1.1.9", "cloudbase-init.lock"}
