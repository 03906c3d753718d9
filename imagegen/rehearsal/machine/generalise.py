"""What a cloud's generalise script does to the machine: refuses one that is not ready, removes leftovers, seals it."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.bundle import HOME, UNPACKED
from imagegen.rehearsal.machine.engine import Outcome
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.report import REPORT
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.machine.stock import EC2LAUNCH, EC2LAUNCH_STATE, GUEST_AGENT, IMAGE_STATE, LISTENERS

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

TEMP = r"C:\Windows\Temp"
LEFTOVERS = ("imagegen-*", "packer-*", "script-*.ps1", "winrmcp-*")
ANSWERS = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\conf\Unattend.xml"
SETUP_SCRIPTS = r"C:\Windows\Setup\Scripts"
SEALED = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"


def generalise(machine: Machine, *, cloud: str) -> Outcome:
    """`cloud` is aws or azure."""
    try:
        _check_ready(machine)
        _clear_leftovers(machine)
        if cloud == "aws":
            _reset_ec2launch(machine)
        else:
            _check_azure(machine)
        machine.need_tool(r"Sysprep\sysprep.exe")
        machine.registry.write(IMAGE_STATE, "ImageState", Value("String", SEALED))
        _clear_listeners(machine)
    except RefusedByWindows as refusal:
        return Outcome(1, f"failed: {refusal}\n")
    return Outcome(0, "")


def _check_ready(machine: Machine) -> None:
    services = machine.services
    if not machine.files.is_file(UNPACKED + r"\seal.psm1"):
        raise RefusedByWindows(f"there is no {UNPACKED}\\seal.psm1")
    if not machine.files.is_file(REPORT):
        raise RefusedByWindows("there is no report.json: the last phase has not finished")
    if machine.restart_pending():
        raise RefusedByWindows("Windows has a restart pending")
    if not services.exists("cloudbase-init") or services.start_type("cloudbase-init") != MANUAL:
        raise RefusedByWindows("service cloudbase-init must be there with start manual")
    if services.is_running("cloudbase-init"):
        raise RefusedByWindows("service cloudbase-init is running, not Stopped")


def _clear_leftovers(machine: Machine) -> None:
    for name in machine.files.names(TEMP):
        if any(fnmatch.fnmatch(name.lower(), pattern) for pattern in LEFTOVERS):
            machine.files.remove(f"{TEMP}\\{name}")
    machine.files.remove(HOME)


def _reset_ec2launch(machine: Machine) -> None:
    if not machine.files.is_file(f"{EC2LAUNCH}\\EC2Launch.exe"):
        raise RefusedByWindows(f"there is no {EC2LAUNCH}\\EC2Launch.exe")
    if machine.files.exists(f"{EC2LAUNCH_STATE}\\.run-once"):
        machine.files.remove(f"{EC2LAUNCH_STATE}\\.run-once")


def _check_azure(machine: Machine) -> None:
    if not machine.files.is_file(ANSWERS):
        raise RefusedByWindows(f"there is no {ANSWERS}")
    for name in ("RdAgent", GUEST_AGENT):
        if not machine.services.is_running(name):
            raise RefusedByWindows(f"service {name} is not running")


def _clear_listeners(machine: Machine) -> None:
    """First boot deletes the certificates by this list."""
    keys = [f"{LISTENERS}\\{name}" for name in machine.registry.subkeys(LISTENERS)]
    prints = [(machine.registry.text(key, "certThumbprint") or "").replace(" ", "") for key in keys]
    machine.files.make_folder(SETUP_SCRIPTS)
    lines = "".join(f"{text}\r\n" for text in prints if text)
    machine.files.write(f"{SETUP_SCRIPTS}\\certificates.txt", lines.encode())
    for key in keys:
        machine.registry.remove_key(key)
