"""The programs and scripts that a config places on a node: a booted node has them, and only administrators can change
them. A disk without one of them, or with one that Users can change, fails the boot."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.files import fold
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.boot import Image
    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
# Users may write to folders there.
TOOL = r"C:\ProgramData\tools\tool.exe"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    executables = f"executables=[{{url: 'https://artifacts.example.com/tool', path: '{TOOL}'}}]"
    return make_image("aws", tmp_path_factory.mktemp("image"), load_today(BASE, executables))


def _remove_tool(machine: Machine) -> None:
    machine.files.remove(TOOL)


def _open_tool(machine: Machine) -> None:
    del machine.files.access_lists[fold(TOOL)]


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (_remove_tool, rf"own-files: {TOOL} is missing"),
        (_open_tool, rf"own-files: others than administrators may change {TOOL} (S-1-5-32-545: Write)"),
    ],
)
def test_a_node_without_them_fails_the_boot(
    image: Image, tmp_path: Path, spoil: Callable[[Machine], None], fault: str
) -> None:
    spoiled = dataclasses.replace(image, machine=image.machine.copy(tmp_path / "disk"))
    spoil(spoiled.machine)
    assert boot_image(spoiled, Runner(tmp_path, os.environ)).faults == [fault]
