"""The boot of an image with wins says what the node loses when a part of wins is taken away."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.access import USERS, AccessEntry, write
from imagegen.rehearsal.machine.registry import Value
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
OLD_NODE = (
    *("kubernetes.version=1.22.17", "windows.release=2019", "runtime.containerd.version=1.6.39"),
    *("allow_eol=true", "kube_proxy=none"),
)
FOLDER, PROGRAM = r"C:\etc\rancher\wins", r"C:\k\wins.exe"
CONFIG = rf"{FOLDER}\config"
SETUP = r"C:\k\flannel\setup.exe"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The version that the seeds of sig-windows-tools install."""
    return make_image("aws", tmp_path_factory.mktemp("image"), load_today(BASE, *OLD_NODE, "wins={version: 0.0.4}"))


def set_command(command: str) -> Change:
    return lambda machine: machine.services.configure("rancher-wins", "ImagePath", Value("ExpandString", command))


def change_config(old: str, new: str) -> Change:
    return lambda machine: change_text(machine, CONFIG, old, new)


# (what it is, what is changed, the line that fails)
CASES: tuple[tuple[str, Change, str], ...] = (
    (
        "no-program",
        lambda machine: machine.files.remove(PROGRAM),
        rf"wins: wins does not run: cannot find its program {PROGRAM} (error 2)",
    ),
    (
        "no-service",
        lambda machine: machine.services.remove("rancher-wins"),
        "wins: wins does not run: its service is not in the image",
    ),
    (
        "started-by-hand",
        lambda machine: machine.services.configure("rancher-wins", "Start", Value("DWord", 3)),
        "wins: wins does not run",
    ),
    (
        "no-arguments",
        set_command(PROGRAM),
        "wins: wins does not run: wins.exe did not answer the service manager: it runs without srv",
    ),
    (
        "no-config",
        lambda machine: machine.files.remove(CONFIG),
        "wins: wins starts every program that a pod names, because it finds no list; wins replaces its program by "
        rf"{FOLDER}\wins.exe as soon as somebody writes that file",
    ),
    (
        "key-of-newer-versions",
        change_config("whiteList", "white_list"),
        "wins: wins starts every program that a pod names, because it finds no list",
    ),
    (
        "config-cut-off",
        change_config("processPaths:", "processPaths: ["),
        rf"wins: wins does not run: wins.exe cannot read its configuration {CONFIG}:",
    ),
    ("blank-pipe", change_config("rancher_wins", "''"), "wins: wins does not run: wins.exe cannot use its"),
    (
        "another-pipe",
        change_config("rancher_wins", "other"),
        r"wins: wins answers at \\.\pipe\other, and the wins in pods connects to \\.\pipe\rancher_wins",
    ),
    (
        "program-not-listed",
        change_config(SETUP, SETUP + ".old"),
        f"wins: wins does not start {SETUP}; wins also",
    ),
    (
        "replaces-itself",
        change_config("none", "watching"),
        rf"wins: wins replaces its program by {FOLDER}\wins.exe as soon as somebody writes that file",
    ),
    (
        "open-folder",
        lambda machine: write(machine.files, FOLDER, [AccessEntry(USERS, "Modify", inherit=True)], protected=True),
        f"closed-folders: others than administrators may read or write {FOLDER} ({USERS}: Modify), {CONFIG}",
    ),
)


@pytest.mark.parametrize(("change", "line"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_boot_says_what_wins_has_lost(change: Change, line: str, image: Image, tmp_path: Path) -> None:
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    booted = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ))
    # The release record names the program that is gone too.
    (fault,) = [fault for fault in booted.faults if not fault.startswith("release-record: ")]
    assert fault.startswith(line), fault


def test_the_image_of_the_cases_comes_up(image: Image, tmp_path: Path) -> None:
    booted = boot_image(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert "wins runs, and starts the programs of the config only" in booted.lines


@pytest.mark.parametrize("version", ["0.1.2", "0.4.17", "0.4.18", "0.15.0"])
def test_a_node_with_every_form_of_the_configuration_comes_up(version: str, tmp_path: Path) -> None:
    config = load_today(BASE, *OLD_NODE, f"wins={{version: {version}}}")
    assert boot_image(make_image("azure", tmp_path / "image", config), Runner(tmp_path, os.environ)).faults == []


def test_a_node_with_a_policy_of_its_own_comes_up(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE.read_text())
    policy = "white_list: {processPaths: ['C:\\tools\\tool.exe']}\nupgrade: {mode: none}\n"
    (tmp_path / "policy.yaml").write_text(policy)
    config = load_today(tmp_path / "base.yaml", *OLD_NODE, "wins={version: 0.4.11, policy: policy.yaml}")
    booted = boot_image(make_image("aws", tmp_path / "image", config), Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert booted.machine.files.read(CONFIG).decode() == policy
