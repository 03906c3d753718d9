"""Real versions of cloudbase-init set up a node from the shipped config, and from an image with an older Kubernetes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from tests.conftest import load_today
from tests.e2e.boot_support import make_image
from tests.e2e.cloudbase_init_support import VERSIONS, make_runner
from tests.e2e.rehearsal_support import CONFIG, TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.boot import Image

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
