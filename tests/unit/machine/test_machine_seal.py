"""Sealing the machine: what is refused, what is gone afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine import Machine, generalise, stock_windows
from imagegen.rehearsal.machine.features import REBOOT_PENDING
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, MANUAL
from imagegen.rehearsal.machine.stock import IMAGE_STATE, LISTENERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOME = r"C:\ProgramData\imagegen"
CLOUDBASE = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init"
UNATTEND = CLOUDBASE + r"\conf\Unattend.xml"
RUN_ONCE = r"C:\ProgramData\Amazon\EC2Launch\state\.run-once"
LEFT = (
    "imagegen-bundle.zip",
    "imagegen-start.ps1",
    "imagegen-generalise.ps1",
    "packer-ps-env-vars-1.ps1",
    "Script-1.ps1",
)


def built(root: Path, cloud: str) -> Machine:
    machine = stock_windows(root, release="2025", cloud=cloud)
    for path in (rf"{HOME}\report.json", rf"{HOME}\bundle\seal.psm1", UNATTEND, CLOUDBASE + r"\service.exe"):
        machine.files.make_folder(path.rpartition("\\")[0])
        machine.files.write(path, b"x")
    for name in (*LEFT, "other.log"):
        machine.files.write(rf"C:\Windows\Temp\{name}", b"x")
    machine.services.create("cloudbase-init", f'"{CLOUDBASE}\\service.exe"', "Cloud Initialization", MANUAL)
    return machine


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_sealed_machine_holds_nothing_of_the_build(tmp_path: Path, cloud: str) -> None:
    machine = built(tmp_path, cloud)
    outcome = generalise(machine, cloud=cloud)
    assert outcome.exit_code == 0, outcome.output
    assert machine.registry.text(IMAGE_STATE, "ImageState") == "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"
    assert machine.files.names(r"C:\Windows\Temp") == ["other.log"]
    assert not machine.files.exists(HOME)
    assert not machine.files.exists(RUN_ONCE)
    assert not machine.registry.subkeys(LISTENERS)
    assert machine.files.read(r"C:\Windows\Setup\Scripts\certificates.txt") == b"00112233\r\n"


REFUSALS: list[tuple[str, Callable[[Machine], object], str]] = [
    ("aws", lambda m: m.files.remove(rf"{HOME}\report.json"), "there is no report.json"),
    ("aws", lambda m: m.files.remove(HOME), "seal.psm1"),
    ("aws", lambda m: m.registry.make_key(REBOOT_PENDING), "restart pending"),
    ("aws", lambda m: m.services.remove("cloudbase-init"), "must be there with start manual"),
    (
        "azure",
        lambda m: m.services.configure("cloudbase-init", "Start", Value("DWord", AUTOMATIC)),
        "must be there with start manual",
    ),
    ("azure", lambda m: m.services.start("cloudbase-init"), "is running, not Stopped"),
    ("azure", lambda m: m.files.remove(UNATTEND), f"there is no {UNATTEND}"),
    ("azure", lambda m: m.services.stop("RdAgent"), "service RdAgent is not running"),
    ("aws", lambda m: m.files.remove(r"C:\Program Files\Amazon\EC2Launch\EC2Launch.exe"), "EC2Launch.exe"),
]


@pytest.mark.parametrize(("cloud", "spoil", "message"), REFUSALS)
def test_a_machine_that_is_not_ready_is_refused(
    tmp_path: Path, cloud: str, spoil: Callable[[Machine], object], message: str
) -> None:
    machine = built(tmp_path, cloud)
    spoil(machine)
    outcome = generalise(machine, cloud=cloud)
    assert outcome.exit_code != 0
    assert message in outcome.output
    assert machine.registry.text(IMAGE_STATE, "ImageState") == "IMAGE_STATE_COMPLETE"
