"""Pods of the pulled images start on a node that reaches no registry; a store that is spoiled fails the check."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.container_store import PINNED, ContainerStore, sandbox_image
from imagegen.rehearsal.machine.docker_store import DockerStore
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.updates import CURRENT_VERSION
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
CORE = "mcr.microsoft.com/windows/servercore:ltsc2022"
APP = "registry.example.com/app:1"
SETS = (f"windows.container_images=[{CORE}]", f"images=[{APP}, library/nginx]")
CONFIG = r"C:\Program Files\containerd\config.toml"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("aws", tmp_path_factory.mktemp("image"), load_today(BASE, *SETS))


def _forget(machine: Machine) -> None:
    ContainerStore(machine).forget_image(APP)


def _move(machine: Machine) -> None:
    """As a pull by `ctr` without -n leaves it."""
    store = ContainerStore(machine)
    store.name_image(APP, store.images()[APP]["target"], {}, "default")
    store.forget_image(APP)


def _forget_normal_name(machine: Machine) -> None:
    """The operator's spelling is not the one that containerd looks for."""
    store = ContainerStore(machine)
    target = store.images()["docker.io/library/nginx:latest"]["target"]
    store.forget_image("docker.io/library/nginx:latest")
    store.name_image("library/nginx", target, {})


def _unpin(machine: Machine) -> None:
    store = ContainerStore(machine)
    pause = sandbox_image(store.config)
    labels = {key: value for key, value in store.images()[pause]["labels"].items() if key != PINNED[0]}
    store.name_image(pause, store.images()[pause]["target"], labels)


def _remove_layers(machine: Machine) -> None:
    machine.files.remove(r"C:\ProgramData\containerd\root\io.containerd.snapshotter.v1.windows\snapshots")


def _remove_document(machine: Machine) -> None:
    store = ContainerStore(machine)
    store.discard(store.images()[CORE]["target"])


# The change, and the reason.
SPOILED: list[tuple[Callable[[Machine], object], str]] = [
    (_forget, f"a pod of {APP} does not start: {APP}: failed to resolve reference"),
    (_move, f"a pod of {APP} does not start: {APP}: failed to resolve reference"),
    (_forget_normal_name, "a pod of library/nginx does not start: docker.io/library/nginx:latest: failed to resolve"),
    (_unpin, "no pod starts: registry.k8s.io/pause:3.10.2 is not pinned"),
    (_remove_layers, "no pod starts: registry.k8s.io/pause:3.10.2 is not unpacked"),
    (_remove_document, f"a pod of {CORE} does not start: {CORE}: cannot find file"),
    (
        lambda machine: change_text(machine, CONFIG, "registry.k8s.io/pause:3.10.2", "registry.k8s.io/pause:3.10"),
        "no pod starts: registry.k8s.io/pause:3.10: failed to resolve reference",
    ),
    (
        lambda machine: machine.registry.write(CURRENT_VERSION, "CurrentBuildNumber", Value("String", "17763")),
        f"a pod of {CORE} does not start: {CORE}: no match for platform in manifest",
    ),
]


@pytest.mark.parametrize(("change", "reason"), SPOILED, ids=[reason for _, reason in SPOILED])
def test_a_spoiled_store_fails_its_check(
    image: Image, tmp_path: Path, change: Callable[[Machine], object], reason: str
) -> None:
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    faults = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    [fault] = [fault for fault in faults if fault.startswith("images: ")]
    assert f"without a registry, {reason}" in fault


DOCKER = ("runtime.containerd=null", "runtime.docker={version: 28.5.1, cri_dockerd: 0.3.20}", "kube_proxy=none")
TARBALLS = (
    "image_tarballs=[{name: 'registry.example.com/agent:1', url: 'https://artifacts.example.com/agent.tar'}, "
    "{name: 'registry.k8s.io/pause:3.10.2', url: 'https://artifacts.example.com/pause.tar'}]"
)
OLDER = "mcr.microsoft.com/windows/servercore:ltsc2019"
ISOLATED = (
    *("windows.hyper_v=isolation", f"windows.container_images=[{CORE}, {OLDER}]"),
    "targets.aws.instance_types=[m8i.large]",
)


@pytest.fixture(scope="module")
def docker_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("aws", tmp_path_factory.mktemp("docker"), load_today(BASE, *SETS, *DOCKER))


@pytest.fixture(scope="module")
def isolated_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("aws", tmp_path_factory.mktemp("isolated"), load_today(BASE, *ISOLATED))


def _remove_docker_layers(machine: Machine) -> None:
    machine.files.remove(r"C:\ProgramData\docker\windowsfilter")


# The change, and the reason.
SPOILED_DOCKER: list[tuple[Callable[[Machine], object], str]] = [
    (
        lambda machine: DockerStore(machine).forget_image(APP),
        f"a pod of {APP} does not start: {APP}: failed to resolve reference",
    ),
    (
        lambda machine: DockerStore(machine).forget_image("nginx:latest"),
        "a pod of library/nginx does not start: docker.io/library/nginx:latest: failed to resolve",
    ),
    (
        lambda machine: DockerStore(machine).forget_image("registry.k8s.io/pause:3.10.2"),
        "no pod starts: registry.k8s.io/pause:3.10.2: failed to resolve",
    ),
    (_remove_docker_layers, "no pod starts: registry.k8s.io/pause:3.10.2 is not unpacked"),
]


@pytest.mark.parametrize(("change", "reason"), SPOILED_DOCKER, ids=[reason for _, reason in SPOILED_DOCKER])
def test_a_spoiled_store_of_docker_fails_its_check(
    docker_image: Image, tmp_path: Path, change: Callable[[Machine], object], reason: str
) -> None:
    machine = docker_image.machine.copy(tmp_path / "disk")
    change(machine)
    faults = boot_image(dataclasses.replace(docker_image, machine=machine), Runner(tmp_path, os.environ)).faults
    [fault] = [fault for fault in faults if fault.startswith("images: ")]
    assert f"without a registry, {reason}" in fault


def test_an_older_image_without_its_handler_fails_its_check(isolated_image: Image, tmp_path: Path) -> None:
    machine = isolated_image.machine.copy(tmp_path / "disk")
    text = machine.files.read(CONFIG).decode()
    machine.files.write(CONFIG, text.replace("runhcs-wcow-hypervisor-17763", "another").encode())
    faults = boot_image(dataclasses.replace(isolated_image, machine=machine), Runner(tmp_path, os.environ)).faults
    [fault] = [fault for fault in faults if fault.startswith("images: ")]
    assert f"a pod of {OLDER} does not start: {OLDER} is for Windows 10.0.17763.1000, and" in fault


def test_an_image_of_an_older_build_starts_with_isolation(isolated_image: Image, tmp_path: Path) -> None:
    assert boot_image(isolated_image, Runner(tmp_path, os.environ)).faults == []


@pytest.mark.parametrize(
    ("target", "more"),
    [
        ("azure", DOCKER),
        ("aws", (*DOCKER, TARBALLS)),
        ("azure", (TARBALLS,)),
        ("aws", ()),
        ("azure", ("runtime.containerd.registry_mirrors={docker.io: ['https://mirror.example.com/hub/']}",)),
        ("aws", ("runtime.containerd.discard_unpacked_layers=false",)),
        ("azure", ("kubernetes.version=1.35.6", "runtime.containerd.version=1.7.35", "allow_eol=true")),
        ("aws", ("proxy={https: 'http://proxy.example.com:3128', no_proxy: [169.254.169.254]}",)),
    ],
)
def test_the_pods_start(tmp_path: Path, target: str, more: tuple[str, ...]) -> None:
    made = make_image(target, tmp_path / "image", load_today(BASE, *SETS, *more))
    booted = boot_image(made, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert "images" in {verdict.check.name for verdict in booted.verdicts}
