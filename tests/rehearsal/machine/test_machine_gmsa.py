"""The script that registers the plugin of gMSAs on the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.contents import ROLES
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.bundle import COMMON, UNPACKED
from imagegen.rehearsal.machine.commands import run_program
from imagegen.rehearsal.machine.credential_plugins import CLASS, DLL, LISTED

if TYPE_CHECKING:
    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench

FOLDER = r"C:\k\gmsa"
SCRIPT = ROLES / "gmsa" / "files" / "register-plugin.ps1"
POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
LINE = rf"-NoProfile -NonInteractive -ExecutionPolicy Bypass -File {FOLDER}\register-plugin.ps1"


def prepare(machine: Machine, registration: bytes = b"a stand-in for registerplugin.reg 1.1.5") -> Machine:
    machine.files.make_folder(FOLDER)
    machine.files.write(rf"{FOLDER}\register-plugin.ps1", SCRIPT.read_bytes())
    machine.files.write(rf"{FOLDER}\registerplugin.reg", registration)
    machine.registry.make_key(LISTED)
    machine.files.make_folder(UNPACKED)
    machine.files.write(COMMON, b"")
    return machine


def show(machine: Machine) -> str:
    code, output = run_program(machine, POWERSHELL, f"{LINE} -Show")
    assert code == 0
    return output


def test_the_plugin_is_registered_and_the_key_is_closed_again(bench: Bench) -> None:
    machine = prepare(bench.machine)
    assert show(machine) == "dll=\r\nlisted=False\r\nrestored=True\r\n"
    assert run_program(machine, POWERSHELL, LINE) == (0, "")
    assert show(machine) == f"dll={DLL}\r\nlisted=True\r\nrestored=True\r\n"
    assert machine.registry.opened == set()
    assert machine.files.names(FOLDER) == ["register-plugin.ps1", "registerplugin.reg"]


def test_a_killed_script_shows(bench: Bench) -> None:
    machine = prepare(bench.machine)
    assert run_program(machine, POWERSHELL, LINE)[0] == 0
    machine.files.write(rf"{FOLDER}\access.txt", b"O:SYD:")
    assert show(machine).endswith("restored=False\r\n")
    assert run_program(machine, POWERSHELL, LINE)[0] == 0
    assert show(machine).endswith("restored=True\r\n")


@pytest.mark.parametrize("lost", [rf"{FOLDER}\registerplugin.reg", rf"{FOLDER}\register-plugin.ps1", COMMON])
def test_a_failed_import_closes_the_key_too(bench: Bench, lost: str) -> None:
    machine = prepare(bench.machine)
    machine.files.remove(lost)
    code, output = run_program(machine, POWERSHELL, LINE)
    assert (code, bool(output)) == (1, True)
    assert machine.registry.opened == set()
    assert not machine.registry.has_key(rf"{LISTED}\{CLASS}")


def test_windows_without_the_list_is_told(bench: Bench) -> None:
    machine = prepare(bench.machine)
    machine.registry.remove_key(LISTED)
    assert run_program(machine, POWERSHELL, LINE)[0] == 1


def test_other_bytes_are_refused_by_name(bench: Bench) -> None:
    machine = prepare(bench.machine, b"Windows Registry Editor Version 5.00")
    with pytest.raises(UnknownCommandError, match=r"registerplugin\.reg is not a stand-in"):
        run_program(machine, POWERSHELL, LINE)
    machine.files.write(rf"{FOLDER}\register-plugin.ps1", SCRIPT.read_bytes() + b" ")
    with pytest.raises(UnknownCommandError, match=r"register-plugin\.ps1 is not the script"):
        run_program(machine, POWERSHELL, LINE)


def test_a_manifest_brings_its_source(bench: Bench) -> None:
    program, path = r"C:\Windows\System32\wevtutil.exe", rf"{FOLDER}\CCGAKVPluginEvents.man"
    machine = prepare(bench.machine)
    assert run_program(machine, program, f"im {path}")[0] == 1
    machine.files.write(path, b"a stand-in for CCGAKVPluginEvents.man 1.1.5")
    assert run_program(machine, program, "ep") == (0, "")
    assert run_program(machine, program, f"im {path}") == (0, "")
    assert run_program(machine, program, "ep") == (0, "Microsoft-AKSGMSAPlugin\r\n")
    machine.files.write(path, b"<instrumentationManifest>")
    with pytest.raises(UnknownCommandError, match="does not know what"):
        run_program(machine, program, f"im {path}")
