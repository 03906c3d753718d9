"""The boot of an image with an SSH server says what the node loses when a part of it is taken away."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.ssh_server import OF_WINDOWS
from imagegen.rehearsal.machine.sshd import CONFIG, HOST_KEYS
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
PASSES = "sshd lets in who has the machine's key, accepts no password, and has keys of its own"
OF_ADMINISTRATORS = (
    "Match Group administrators\n AuthorizedKeysFile __PROGRAMDATA__/ssh/administrators_authorized_keys\n"
)
POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Where the cloud gives the machine a key."""
    return make_image("aws", tmp_path_factory.mktemp("image"), load_today(BASE, "ssh={}"))


def append(text: str) -> Change:
    return lambda machine: machine.files.write(CONFIG, machine.files.read(CONFIG) + text.encode())


def change_config(old: str, new: str) -> Change:
    return lambda machine: change_text(machine, CONFIG, old, new)


def plant_host_key(machine: Machine) -> None:
    machine.files.write(HOST_KEYS[0], b"private")


# (what it is, what is changed, the line that fails)
CASES: tuple[tuple[str, Change, str], ...] = (
    (
        "no-program",
        lambda machine: machine.files.remove(rf"{OF_WINDOWS}\sshd.exe"),
        rf"ssh: sshd does not run: cannot find its program {OF_WINDOWS}\sshd.exe (error 2)",
    ),
    (
        "no-service",
        lambda machine: machine.services.remove("sshd"),
        "ssh: sshd does not run: its service is not in the image",
    ),
    (
        "started-by-hand",
        lambda machine: machine.services.configure("sshd", "Start", Value("DWord", 3)),
        "ssh: sshd does not run",
    ),
    (
        "bad-option",
        append("Colour yes\n"),
        f"ssh: sshd does not run: sshd.exe ended: {CONFIG} line 12: Bad configuration option: Colour",
    ),
    (
        "windows-own-config",
        lambda machine: machine.files.remove(CONFIG),
        "ssh: sshd accepts passwords; nobody can log in with the machine's key: sshd looks for it in ",
    ),
    (
        "passwords",
        change_config("PasswordAuthentication no", "PasswordAuthentication yes"),
        "ssh: sshd accepts passwords",
    ),
    (
        "keys-of-administrators",
        append(OF_ADMINISTRATORS),
        "ssh: nobody can log in with the machine's key: sshd looks for it in ",
    ),
    (
        "no-keys",
        change_config("PubkeyAuthentication yes", "PubkeyAuthentication no"),
        "ssh: nobody can log in with the machine's key: sshd looks for it in ",
    ),
    ("another-port", change_config("Port 22", "Port 2222"), "ssh: sshd listens on port 2222, and the config has 22"),
    (
        "no-rule",
        lambda machine: machine.firewall.remove("imagegen-ssh"),
        "ssh: Windows' firewall blocks port 22 of sshd",
    ),
    (
        "keys-of-the-image",
        plant_host_key,
        f"ssh: every node has the same key of the host: the image has {HOST_KEYS[0]}",
    ),
    (
        "another-shell",
        lambda machine: machine.registry.remove_key(r"HKLM:\SOFTWARE\OpenSSH"),
        f"ssh: an SSH session starts no program, and the config has {POWERSHELL}",
    ),
)


@pytest.mark.parametrize(("change", "line"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_boot_says_what_the_server_has_lost(change: Change, line: str, image: Image, tmp_path: Path) -> None:
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    booted = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ))
    # Other checks name the same file too.
    others = ("closed-folders: ", "leftovers: ")
    faults = [fault for fault in booted.faults if not fault.startswith(others)]
    assert len(faults) == 1
    assert faults[0].startswith(line), faults


def test_two_nodes_have_different_keys_of_the_host(image: Image, tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        booted = boot_image(image, Runner(tmp_path / name, os.environ))
        assert booted.faults == []
        assert PASSES in booted.lines
        keys.append({booted.machine.files.read(path) for path in HOST_KEYS})
    assert len(keys[0] | keys[1]) == 2 * len(HOST_KEYS)


@pytest.mark.parametrize("target", ["aws", "azure"])
@pytest.mark.parametrize(
    "sets",
    [
        ("ssh={port: 2222, shell: cmd}",),
        ("ssh={source: zip}",),
        ("ssh={source: zip, version: 9.8.3.0}", "windows.release=2025"),
        ("ssh={}", "windows.release=2025"),
        ("ssh={}", "windows.release=2019", "kubernetes.version=1.34.9", "allow_eol=true"),
    ],
    ids=["port-and-shell", "zip", "zip-2025", "2025", "2019"],
)
def test_a_node_comes_up(sets: tuple[str, ...], target: str, tmp_path: Path) -> None:
    booted = boot_image(make_image(target, tmp_path / "image", load_today(BASE, *sets)), Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert PASSES in booted.lines
