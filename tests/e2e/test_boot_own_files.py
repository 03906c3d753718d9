"""The programs and scripts that a config places on a node: a booted node has them, user data calls the scripts, and
only administrators can change them. A disk without one, or with one that Users can change, fails the boot."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.access import USERS, AccessEntry, write
from imagegen.rehearsal.machine.files import fold
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Boot
    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

CONFIG = REPOSITORY / "tests" / "data" / "own-files" / "config.yaml"
TOOL = r"C:\ProgramData\tools\tool.exe"
BEFORE = r"C:\k\pre-kubeadm\01-prepare.ps1"
AFTER = r"C:\k\post-kubeadm\02-prepare.ps1"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("aws", tmp_path_factory.mktemp("image"), load_today(CONFIG))


def _boot(image: Image, folder: Path, change: Callable[[Machine], None] = lambda _: None) -> Boot:
    changed = dataclasses.replace(image, machine=image.machine.copy(folder / "disk"))
    change(changed.machine)
    return boot_image(changed, Runner(folder, os.environ))


def test_user_data_calls_the_scripts_in_their_order(image: Image, tmp_path: Path) -> None:
    booted = _boot(image, tmp_path)
    assert (booted.faults, booted.limits) == ([], ())
    assert booted.machine.files.read(r"C:\run\kubeadm\order.txt").split() == [b"before", b"label", b"after"]


def _remove(path: str) -> Callable[[Machine], None]:
    return lambda machine: machine.files.remove(path)


def _open_tool(machine: Machine) -> None:
    # Its folder is closed as well.
    for path in (TOOL, TOOL.rpartition("\\")[0]):
        del machine.files.access_lists[fold(path)]


def _open_script(machine: Machine) -> None:
    write(machine.files, AFTER, [AccessEntry(USERS, "Modify", inherit=False)], protected=False)


def _change_script(machine: Machine) -> None:
    machine.files.write(AFTER, b"Write-Output other\r\n")


@pytest.mark.parametrize(
    ("spoil", "faults"),
    [
        (_remove(TOOL), [rf"own-files: {TOOL} is missing"]),
        (_open_tool, [rf"own-files: others than administrators may change {TOOL} (S-1-5-32-545: Write)"]),
        # User data ends there: a script that fails prevents the join.
        (_remove(BEFORE), ["join: kubeadm did not run", rf"own-files: {BEFORE} is missing"]),
        (_remove(AFTER), [rf"own-files: {AFTER} is missing"]),
        (_change_script, [rf"own-files: {AFTER} has other content"]),
        (
            _open_script,
            [
                rf"own-files: others than administrators may change {AFTER} (S-1-5-32-545: Modify)",
                rf"closed-folders: others than administrators may read or write {AFTER} (S-1-5-32-545: Modify)",
            ],
        ),
    ],
)
def test_a_node_without_them_fails_the_boot(
    image: Image, tmp_path: Path, spoil: Callable[[Machine], None], faults: list[str]
) -> None:
    assert set(faults) <= set(_boot(image, tmp_path, spoil).faults)


def test_a_script_that_the_rehearsal_cannot_run_is_a_limit_and_no_fault(image: Image, tmp_path: Path) -> None:
    text = b"Add-Content -Path C:\\run\\kubeadm\\order.txt -Value after\r\nGet-NetAdapter\r\n"
    own = dataclasses.replace(image, own_files={**image.own_files, AFTER: text})
    booted = _boot(own, tmp_path, lambda machine: machine.files.write(AFTER, text))
    assert booted.faults == []
    assert booted.limits == (
        f"{AFTER} to its end: the rehearsal does not know this PowerShell: {AFTER}, line 2: Get-NetAdapter",
    )
