"""The settings of Windows on a booted node: each that is spoiled on the captured disk fails its own check."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.image import Image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.commands import BALANCED, POWER_PLANS
from imagegen.rehearsal.machine.generalise import SETUP_SCRIPTS
from imagegen.rehearsal.machine.host_name import TCPIP
from imagegen.rehearsal.machine.ports import PortRange
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.machine.triggers import DOMAIN_JOINED, NOT_IN_A_DOMAIN, write_triggers
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
SETS = ("windows.time_zone=Central Standard Time (Mexico)", "host_names.dns_suffix=nodes.example.com")
CHECKS = {"time-zone", "dns-suffix", "power", "time-service", "ports", "defender"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Image]:
    """The captured machine of each target."""
    made: dict[str, Image] = {}

    def image(target: str) -> Image:
        if target not in made:
            made[target] = make_image(target, tmp_path_factory.mktemp(target), load_today(BASE, *SETS))
        return made[target]

    return image


def write(key: str, name: str, data: str) -> Change:
    return lambda machine: machine.registry.write(key, name, Value("String", data))


def forget_zone(machine: Machine) -> None:
    change_text(machine, rf"{SETUP_SCRIPTS}\SetupComplete.cmd", '"%SystemRoot%\\System32\\tzutil.exe"', "rem ")


# The name of the check, the target, the change and the reason.
SPOILED: list[tuple[str, str, Change, str]] = [
    ("time-zone", "aws", forget_zone, "the time zone is UTC, and the config has Central Standard Time (Mexico)"),
    ("time-zone", "azure", forget_zone, "the time zone is Pacific Standard Time, and the config has"),
    ("dns-suffix", "aws", write(TCPIP, "NV Domain", ""), "the DNS suffix is '', and the config has nodes.example.com"),
    ("power", "azure", write(POWER_PLANS, "ActivePowerScheme", BALANCED), f"the power plan is {BALANCED}"),
    (
        "time-service",
        "aws",
        lambda machine: write_triggers(machine, "W32Time", (DOMAIN_JOINED, NOT_IN_A_DOMAIN)),
        "the time service does not run",
    ),
    (
        "time-service",
        "azure",
        lambda machine: machine.services.configure("W32Time", "Start", Value("DWord", MANUAL)),
        "the time service does not run",
    ),
    ("ports", "aws", lambda machine: machine.ports.set_dynamic("tcp", PortRange(49152, 16384)), "can get 16384 tcp"),
    (
        "ports",
        "aws",
        lambda machine: machine.ports.include("tcp", PortRange(30000, 2768)),
        "a program can get the ports TCP 30000 to 32767: Kubernetes' NodePorts",
    ),
    (
        "ports",
        "azure",
        lambda machine: machine.ports.include("udp", PortRange(65330, 1)),
        "a program can get the ports UDP 65330: Azure drops",
    ),
    *(
        ("defender", "aws", (lambda machine, path=path: machine.defender.include_process(path)), f"that {path} opens")
        for path in (r"C:\k\kubelet.exe", r"C:\Program Files\containerd\containerd-shim-runhcs-v1.exe")
    ),
]


@pytest.mark.parametrize(("name", "target", "change", "reason"), SPOILED)
def test_a_spoiled_setting_fails_its_check(
    images: Callable[[str], Image], tmp_path: Path, name: str, target: str, change: Change, reason: str
) -> None:
    image = images(target)
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    [fault] = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    assert fault.startswith(f"{name}: ")
    assert reason in fault


@pytest.mark.parametrize("target", ["aws", "azure"])
def test_the_settings_show_on_a_node(images: Callable[[str], Image], tmp_path: Path, target: str) -> None:
    booted = boot_image(images(target), Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert {verdict.check.name for verdict in booted.verdicts} >= CHECKS == {name for name, *_ in SPOILED}
