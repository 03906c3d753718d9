"""Windows updates on a booted node: what the config names is there, nothing of its categories is offered."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.image import Image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.updates import PACKAGES, STAGED, Offer
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
# The first is in the base image already, as a later revision. The catalogue does not know the second.
SETS = (
    "windows.updates={categories: [security, definitions], kbs: [KB5066782, KB5099999], exclude: [KB5034439]}",
    "proxy={https: 'http://proxy.example.com:3128', no_proxy: [169.254.169.254, 168.63.129.16]}",
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("azure", tmp_path_factory.mktemp("image"), load_today(BASE, *SETS))


def boot(image: Image, change: Change, folder: Path) -> dict[str, str]:
    """The lines of the checks that failed, by name."""
    machine = image.machine.copy(folder / "disk")
    change(machine)
    booted = boot_image(Image(**{**vars(image), "machine": machine}), Runner(folder, os.environ))
    assert booted.unknown == ()
    assert "updates" in {verdict.check.name for verdict in booted.verdicts}
    return {verdict.check.name: verdict.line for verdict in booted.verdicts if not verdict.passed}


def test_a_node_has_the_updates(image: Image, tmp_path: Path) -> None:
    assert boot(image, lambda _: None, tmp_path) == {}
    assert image.machine.updates.proxy is None


def take_back(machine: Machine) -> None:
    for name in machine.registry.subkeys(PACKAGES):
        if "KB5099999" in name:
            machine.registry.write(rf"{PACKAGES}\{name}", "CurrentState", Value("DWord", STAGED))


def install(machine: Machine) -> None:
    offer = Offer("KB9000008")
    machine.updates.offers.append(offer)
    assert [one.code for one in machine.updates.install(machine, [offer])] == [""]


def leave_proxy(machine: Machine) -> None:
    machine.updates.proxy = "http=proxy.example.com:3128"


# What is spoiled, the change and the line.
SPOILED: tuple[tuple[str, Change, str], ...] = (
    ("package", take_back, "updates: Windows has not the updates KB5099999"),
    (
        "category",
        lambda machine: machine.updates.offers.append(Offer("KB9000007")),
        "updates: Windows Update still offers KB9000007",
    ),
    ("proxy", leave_proxy, "updates: WinHTTP still has the proxy of the build: http=proxy.example.com:3128"),
)


@pytest.mark.parametrize(("change", "line"), [row[1:] for row in SPOILED], ids=[row[0] for row in SPOILED])
def test_what_is_lost_is_said(image: Image, tmp_path: Path, change: Change, line: str) -> None:
    assert boot(image, change, tmp_path) == {"updates": line}


def test_an_image_whose_update_waits_is_finished_by_the_first_start(image: Image, tmp_path: Path) -> None:
    assert boot(image, install, tmp_path) == {}
