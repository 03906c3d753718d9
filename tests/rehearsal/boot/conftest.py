"""Machines that start from a sealed image: its disk is copied for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.contents import ROLES
from imagegen.base.templating import render_text
from imagegen.rehearsal.artifacts import make_answer_files
from imagegen.rehearsal.boot.model import Ended, Process
from imagegen.rehearsal.boot.shell import Shell
from imagegen.rehearsal.clouds import guest_agents
from imagegen.rehearsal.machine import Machine, generalise, stock_windows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.machine.windows import ENVIRONMENT
from imagegen.rehearsal.releases import PackageRelease, product_releases

if TYPE_CHECKING:
    from pathlib import Path

CLOUDBASE = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init"
CLOUDBASE_PROGRAM = rf"{CLOUDBASE}\Python\Scripts\cloudbase-init.exe"
UNATTEND = rf"{CLOUDBASE}\conf\Unattend.xml"
SETUP_SCRIPTS = r"C:\Windows\Setup\Scripts"
AGENT_CONFIG = r"C:\ProgramData\Amazon\EC2Launch\config\agent-config.yml"
FILES = ROLES / "cloudbase-init" / "files"
KUBERNETES = r"C:\Program Files\kubernetes"


def put_file(machine: Machine, path: str, data: bytes) -> None:
    machine.files.make_folder(path.rpartition("\\")[0])
    machine.files.write(path, data)


def make_setup_complete(time_zone: str | None) -> bytes:
    template = (ROLES / "cloudbase-init" / "templates" / "SetupComplete.cmd.j2").read_text("ascii")
    facts = {"script_policy": "-ExecutionPolicy Bypass "}
    return render_text(template, {"windows": {"time_zone": time_zone}, "facts": facts}).encode()


def sealed(root: Path, cloud: str) -> Machine:
    """A machine as the steps and the sealing leave it, with what matters to its first start."""
    machine = stock_windows(root, release="2022", cloud=cloud)
    (release,) = product_releases("cloudbase-init")
    assert isinstance(release, PackageRelease)
    for path, data in {
        CLOUDBASE_PROGRAM: b"MZ",
        rf"{CLOUDBASE}\bin\OpenStackService.exe": b"MZ",
        UNATTEND: make_answer_files(release)[UNATTEND],
        rf"{SETUP_SCRIPTS}\SetupComplete.cmd": make_setup_complete(None),
        rf"{SETUP_SCRIPTS}\first-boot.ps1": (FILES / "first-boot.ps1").read_bytes(),
        r"C:\ProgramData\imagegen\bundle\seal.psm1": b"",
        r"C:\ProgramData\imagegen\report.json": b"",
        rf"{KUBERNETES}\kubeadm.exe": b"MZ",
    }.items():
        put_file(machine, path, data)
    path = f"{machine.registry.text(ENVIRONMENT, 'Path')};{KUBERNETES}"
    machine.registry.write(ENVIRONMENT, "Path", Value("ExpandString", path))
    machine.services.create("cloudbase-init", f'"{CLOUDBASE}\\bin\\OpenStackService.exe"', "Cloudbase-Init", MANUAL)
    outcome = generalise(machine, cloud=cloud)
    assert outcome.exit_code == 0, outcome.output
    return machine


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return {cloud: sealed(tmp_path_factory.mktemp(cloud), cloud) for cloud in ("aws", "azure")}


@pytest.fixture
def aws(images: dict[str, Machine], tmp_path: Path) -> Machine:
    return images["aws"].copy(tmp_path / "aws")


@pytest.fixture
def azure(images: dict[str, Machine], tmp_path: Path) -> Machine:
    return images["azure"].copy(tmp_path / "azure")


class Started:
    """Stands for the programs of the image: what they were started with, and how they end."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []
        self.folders: list[str] = []
        self.codes: list[int] = []
        """The exit codes of the next starts; 0 afterwards."""

    def run(self, process: Process) -> Ended:
        self.lines.append(tuple(process.arguments))
        self.folders.append(process.folder)
        return Ended(self.codes.pop(0) if self.codes else 0, "done\r\n")


@pytest.fixture
def started() -> Started:
    return Started()


@pytest.fixture
def shell(started: Started) -> Shell:
    """The shell of a booting machine, with stand-ins for the programs of the image."""
    agents = {name: program for cloud in ("aws", "azure") for name, program in guest_agents(cloud).programs.items()}
    own = {"cloudbase-init.exe": started.run, "kubeadm.exe": started.run, "kubectl.exe": started.run}
    return Shell({**agents, **own}, [])
