"""The scripts whose effect a rehearsal knows: the models hold only for the bytes that they were compared with."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import pytest

from imagegen.base.contents import ROLES, SHIPPED, StepRoot
from imagegen.rehearsal.boot import first_boot
from imagegen.rehearsal.boot.model import Process, UnknownCommandError
from imagegen.rehearsal.boot.shell import Shell
from imagegen.rehearsal.machine import credential_plugins, ssh_server, tasks
from imagegen.rehearsal.node import pod_network_script, reset_script
from tests.rehearsal.boot.conftest import SETUP_SCRIPTS, put_file

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine

FIRST_BOOT = "cloudbase-init/files/first-boot.ps1"
ROTATE_LOGS = ROLES / "kubernetes" / "files" / "rotate-logs.ps1"
ON_DISK = r"C:\k\rotate-logs.ps1"
POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
EVERY_S = 600


@pytest.mark.parametrize(
    ("script", "digest", "place"),
    [
        (ROLES / FIRST_BOOT, first_boot.SHA256, "SHA256 in imagegen/rehearsal/boot/first_boot.py"),
        (
            ROLES / "cni" / "files" / "set-pod-network.ps1",
            pod_network_script.SHA256,
            "SHA256 in imagegen/rehearsal/node/pod_network_script.py",
        ),
        (
            ROLES / "kubernetes" / "files" / "reset-node.ps1",
            reset_script.SHA256,
            "SHA256 in imagegen/rehearsal/node/reset_script.py",
        ),
        (
            ROTATE_LOGS,
            tasks.ROTATE_LOGS_SHA256,
            "ROTATE_LOGS_SHA256 in imagegen/rehearsal/machine/tasks.py (the model is rotation.py)",
        ),
        (
            ROLES / "gmsa" / "files" / "register-plugin.ps1",
            credential_plugins.REGISTER_PLUGIN_SHA256,
            "REGISTER_PLUGIN_SHA256 in imagegen/rehearsal/machine/credential_plugins.py",
        ),
        (
            ROLES / "ssh" / "files" / "add-ssh-server.ps1",
            ssh_server.ADD_SERVER_SHA256,
            "ADD_SERVER_SHA256 in imagegen/rehearsal/machine/ssh_server.py",
        ),
    ],
    ids=["first-boot", "set-pod-network", "reset-node", "rotate-logs", "register-plugin", "add-ssh-server"],
)
def test_the_model_was_compared_with_the_shipped_script(script: Path, digest: str, place: str) -> None:
    found = hashlib.sha256(script.read_bytes()).hexdigest()
    assert found == digest, f"{script.name} changed: compare the model with the script, then update {place}"


def test_a_first_boot_script_that_nobody_compared_is_refused(azure: Machine, tmp_path: Path) -> None:
    changed = (ROLES / FIRST_BOOT).read_bytes().replace(b"] param()\n", b"] param()\n    return\n")
    own = tmp_path / FIRST_BOOT
    own.parent.mkdir(parents=True)
    own.write_bytes(changed)
    contents = dataclasses.replace(SHIPPED, step_roots=(StepRoot(tmp_path, "own"),))
    path = rf"{SETUP_SCRIPTS}\first-boot.ps1"
    put_file(azure, path, changed)
    shell = Shell({}, first_boot.first_boot_scripts(contents))
    with pytest.raises(UnknownCommandError, match=r"first-boot\.ps1 is not the script that the rehearsal has a model"):
        shell.run(Process(azure, (POWERSHELL, "-File", path)))


def rotating_task(script: str) -> tasks.Task:
    return tasks.Task("own", POWERSHELL, rf"-File {script} -List C:\k\list.txt", EVERY_S, 60)


def test_a_rotation_that_nobody_compared_is_refused(azure: Machine) -> None:
    put_file(azure, r"C:\k\list.txt", b"")
    put_file(azure, ON_DISK, ROTATE_LOGS.read_bytes())
    azure.tasks.register(azure, rotating_task(ON_DISK))
    azure.wait_until(lambda: False, EVERY_S)
    assert azure.tasks.results == {"own": 0}
    put_file(azure, ON_DISK, ROTATE_LOGS.read_bytes() + b"# one more line\n")
    with pytest.raises(UnknownCommandError, match=r"rotate-logs\.ps1 is not the script that the rehearsal has a model"):
        azure.wait_until(lambda: False, EVERY_S)


def test_a_script_of_another_name_does_nothing(azure: Machine) -> None:
    put_file(azure, r"C:\k\own.ps1", b"anything")
    azure.tasks.register(azure, rotating_task(r"C:\k\own.ps1"))
    azure.wait_until(lambda: False, EVERY_S)
    assert azure.tasks.results == {"own": 0}
