"""What must not be in an image: planted before the machine is sealed, each is found by name, and sealing takes it out.

The verdict of the boot has these findings. The builder's certificate, firewall rules and account go only at a node's
first boot: tests/e2e/test_boot_hard_to_fool.py plants those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.leftovers import find_leftovers
from imagegen.rehearsal.clouds.azure.guest import STATE
from imagegen.rehearsal.machine import Machine, generalise
from imagegen.rehearsal.machine.generalise import WINLOGON, WINRM
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.machine.tasks import Task
from tests.rehearsal.machine.test_machine_seal import HOME, built, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Plant = Callable[[Machine], object]

PROFILES = (r"C:\Users\Administrator", r"C:\Windows\System32\config\systemprofile")
HISTORY = r"AppData\Roaming\Microsoft\Windows\PowerShell\PSReadLine\ConsoleHost_history.txt"
PLUGIN = r"C:\Packages\Plugins\Microsoft.Compute.CustomScriptExtension\1.10.20"
# The path of a file, and what the finding calls it.
FILES = {
    "aws": (
        *(
            (rf"C:\Windows\Temp\{name}", "a temporary file")
            for name in (
                *("imagegen-bundle.zip", "imagegen-start.ps1", "imagegen-credentials.ps1", "script-2.ps1"),
                *("packer-ps-env-vars-1.ps1", "packer-elevated-shell-1.ps1", "winrmcp-1.tmp", "of-a-setup.log"),
            )
        ),
        *((rf"{profile}\AppData\Local\Temp\winrmcp-1.tmp", "a temporary file") for profile in PROFILES),
        *((rf"{profile}\{HISTORY}", "a history of commands") for profile in PROFILES),
        (r"C:\ProgramData\ssh\ssh_host_rsa_key", "a host key"),
        (r"C:\ProgramData\ssh\ssh_host_ed25519_key.pub", "a host key"),
        (r"C:\Windows\Panther\unattend-original.xml", "an answer file"),
        (r"C:\Windows\Panther\Unattend\unattend.xml", "an answer file"),
        (r"C:\Windows\System32\Sysprep\unattend.xml", "an answer file"),
        (r"C:\Autounattend.xml", "an answer file"),
        (r"C:\Windows\imagegen-check\plan.json", "a file of the engine"),
        *(
            (rf"{HOME}\{name}", "a file of the engine")
            for name in ("engine.log", "state.json", "signed-0.exe", r"artifacts\a", r"docker\config.json")
        ),
        (r"C:\Windows\Logs\CBS\CBS.log", "a log of Windows"),
        (r"C:\ProgramData\Amazon\EC2Launch\state\.run-once", "the mark of the builder's first boot"),
    ),
    "azure": (
        (rf"{PLUGIN}\RuntimeSettings\0.settings", "a file of an extension"),
        (rf"{PLUGIN}\Downloads\0\prepare.ps1", "a file of an extension"),
        (r"C:\AzureData\CustomData.bin", "custom data of the builder"),
        (r"C:\WindowsAzure\Logs\Plugins\a\a.log", "a log of an extension"),
    ),
}


def _leave_file(path: str) -> Plant:
    def plant(machine: Machine) -> None:
        if not machine.files.is_file(path):
            machine.files.make_folder(path.rpartition("\\")[0])
            machine.files.write(path, b"x")

    return plant


def _leave_task(name: str, triggers: tuple[str, ...] = ()) -> Plant:
    task = Task(name, r"C:\Windows\System32\cmd.exe", "", None, 60, triggers=triggers)
    return lambda machine: machine.tasks.register(machine, task)


OTHERS: tuple[tuple[str, Plant, str], ...] = (
    ("aws", _leave_task("imagegen-add-ssh-server"), "task imagegen-add-ssh-server"),
    ("aws", _leave_task("imagegen-updates"), "task imagegen-updates"),
    ("aws", _leave_task("packer-0a1b", ("TimeTrigger",)), "task packer-0a1b"),
    ("azure", lambda m: m.registry.make_key(rf"{STATE}\Policy_1"), "the state of extension Policy_1"),
    ("aws", lambda m: m.event_logs.add("Setup"), "entries in event log Setup"),
    ("aws", lambda m: setattr(m, "replaced_components", True), "components that updates have replaced"),
    ("azure", lambda m: setattr(m.volume, "holds_deleted", True), "blocks of deleted files"),
)
PLANTED = (
    *((cloud, _leave_file(path), f"{what}, {path}") for cloud, files in FILES.items() for path, what in files),
    *OTHERS,
)
# What sealing does not repair: it refuses the machine.
REFUSED: tuple[tuple[str, Plant, str, str], ...] = (
    (
        "aws",
        lambda m: put(m, WINLOGON, "AutoAdminLogon", Value("String", "1")),
        "an automatic logon",
        "AutoAdminLogon is on",
    ),
    (
        "aws",
        lambda m: put(m, WINLOGON, "DefaultPassword", Value("String", "x")),
        "a password for an automatic logon",
        "a DefaultPassword is set",
    ),
    (
        "aws",
        lambda m: put(m, WINRM, "auth_basic", Value("DWord", 1)),
        "Basic requests allowed for WinRM",
        "WinRM has auth_basic on",
    ),
    (
        "aws",
        lambda m: put(m, WINRM, "allow_unencrypted", Value("DWord", 1)),
        "unencrypted requests allowed for WinRM",
        "WinRM has allow_unencrypted on",
    ),
    (
        "azure",
        lambda m: m.services.create("agent", r'"C:\Packages\Plugins\A\a.exe" -x', "Agent", MANUAL),
        "service agent of an extension",
        r"an extension is installed: C:\Packages\Plugins\A\a.exe",
    ),
)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    """A sealed machine of each cloud. What a test plants on it is gone before the next one."""
    machines = {cloud: built(tmp_path_factory.mktemp(cloud), cloud) for cloud in FILES}
    for cloud, machine in machines.items():
        assert generalise(machine, cloud=cloud).exit_code == 0
    return machines


@pytest.mark.parametrize("cloud", FILES)
def test_sealing_takes_out_everything_that_is_planted(tmp_path: Path, cloud: str) -> None:
    machine = built(tmp_path, cloud)
    expected = []
    for of_cloud, plant, finding in PLANTED:
        if of_cloud == cloud:
            plant(machine)
            expected.append(finding)
    assert set(expected) <= set(find_leftovers(machine, cloud)), "or the seal has nothing to do"
    outcome = generalise(machine, cloud=cloud)
    assert outcome.exit_code == 0, outcome.output
    assert list(find_leftovers(machine, cloud)) == []


@pytest.mark.parametrize(
    ("cloud", "plant", "finding"),
    [*PLANTED, *((cloud, plant, finding) for cloud, plant, finding, _ in REFUSED)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_seal_leaves_is_found_by_name(
    sealed: dict[str, Machine], tmp_path: Path, cloud: str, plant: Plant, finding: str
) -> None:
    machine = sealed[cloud].copy(tmp_path)
    plant(machine)
    assert list(find_leftovers(machine, cloud)) == [finding]


@pytest.mark.parametrize(("cloud", "plant", "_finding", "reason"), REFUSED)
def test_what_sealing_does_not_repair_it_refuses(
    tmp_path: Path, cloud: str, plant: Plant, _finding: str, reason: str
) -> None:
    machine = built(tmp_path, cloud)
    plant(machine)
    outcome = generalise(machine, cloud=cloud)
    assert (outcome.exit_code, reason in outcome.output) == (1, True)


def test_a_task_of_the_plan_stays(tmp_path: Path) -> None:
    machine = built(tmp_path, "aws")
    _leave_task("imagegen-rotate-logs", ("TimeTrigger",))(machine)
    assert generalise(machine, cloud="aws").exit_code == 0
    assert machine.tasks.names() == ["imagegen-rotate-logs"]
    assert list(find_leftovers(machine, "aws")) == []
