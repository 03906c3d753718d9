"""The boot of an image with the plugin of gMSAs says what the node loses when a part of it is taken away."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.credential_plugins import APPLICATION, CLASS, CLASSES, DLL, LISTED, SERVER
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
SOURCES = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WINEVT\Publishers"
PASSES = "the plugin of gMSAs is registered, and its key is closed again"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("azure", tmp_path_factory.mktemp("image"), load_today(BASE, "gmsa={}"))


# (what it is, what is changed, the line that fails)
CASES: tuple[tuple[str, Change, str], ...] = (
    (
        "not-listed",
        lambda machine: machine.registry.remove_key(rf"{LISTED}\{CLASS}"),
        r"gmsa: Windows does not load the plugin of gMSAs: its class is not below Control\CCG\COMClasses",
    ),
    (
        "no-class",
        lambda machine: machine.registry.remove_key(SERVER),
        "gmsa: the class of the plugin of gMSAs is not registered",
    ),
    (
        "no-dll",
        lambda machine: machine.files.remove(DLL),
        f"gmsa: the plugin of gMSAs is registered as {DLL}, which is missing",
    ),
    (
        "no-process",
        lambda machine: machine.registry.remove_key(rf"{CLASSES}\AppID\{APPLICATION}"),
        "gmsa: the class of the plugin of gMSAs has no process to run in",
    ),
    (
        "left-open",
        lambda machine: machine.registry.opened.add(LISTED.lower()),
        "gmsa: administrators can change the list of plugins of gMSAs: its key was not restored",
    ),
    (
        "no-sources",
        lambda machine: machine.registry.remove_key(SOURCES),
        "gmsa: Windows does not know the source of events Microsoft-AKSGMSAPlugin, Microsoft-Windows-Containers-CCG",
    ),
)


@pytest.mark.parametrize(("change", "line"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_boot_says_what_the_plugin_has_lost(change: Change, line: str, image: Image, tmp_path: Path) -> None:
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    booted = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ))
    # The release record names the file that is gone too.
    assert [fault for fault in booted.faults if not fault.startswith("release-record: ")] == [line]


def test_the_image_of_the_cases_comes_up(image: Image, tmp_path: Path) -> None:
    booted = boot_image(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert PASSES in booted.lines


def test_another_cloud_has_no_such_plugin(tmp_path: Path) -> None:
    booted = boot_image(
        make_image("aws", tmp_path / "image", load_today(BASE, "gmsa={}")), Runner(tmp_path, os.environ)
    )
    assert booted.faults == []
    assert PASSES not in booted.lines
