r"""The plugins from which Windows gets the credentials of gMSAs (ccg.exe), and the script that registers one.

The values of the registration are those of a node with the plugin, and of the script that its developers published
first. What the plugin's own .reg file holds beyond them is not known."""

from __future__ import annotations

import hashlib
import ntpath
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.bundle import need_common
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

# Only TrustedInstaller may write below it.
LISTED: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\CCG\COMClasses"
CLASSES: Final = r"HKLM:\SOFTWARE\Classes"
CLASS: Final = "{CCC2A336-D7F3-4818-A213-272B7924213E}"
APPLICATION: Final = "{557110E1-88BC-4583-8281-6AAC6F708584}"
DLL: Final = r"C:\Windows\System32\CCGAKVPlugin.dll"
SERVER: Final = rf"{CLASSES}\CLSID\{CLASS}\InprocServer32"
# Compare the functions below with a changed script before you take over its digest.
REGISTER_PLUGIN_SHA256: Final = "b26bc9a2d441b9a2bf0240037043dc19bbceb6de78dc880b8524505ec03ea041"
_FILE: Final = b"a stand-in for registerplugin.reg"
_SAVED: Final = "access.txt"


def run_register_script(machine: Machine, script: str, *, show: bool) -> str:
    """What register-plugin.ps1 prints."""
    if not machine.files.is_file(script):
        raise RefusedByWindows(f"powershell.exe cannot find its script {script}")
    if hashlib.sha256(without_signature(machine.files.read(script))).hexdigest() != REGISTER_PLUGIN_SHA256:
        raise UnknownCommandError(f"{script} is not the script that the rehearsal has a model of")
    folder = ntpath.dirname(script)
    if not show:
        need_common(machine)
        _register(machine, folder)
        return ""
    restored = not machine.files.is_file(rf"{folder}\{_SAVED}")
    dll = machine.registry.text(SERVER, "") or ""
    return f"dll={dll}\r\nlisted={is_listed(machine, CLASS)}\r\nrestored={restored}\r\n"


def is_listed(machine: Machine, name: str) -> bool:
    """Whether Windows loads a class as such a plugin."""
    return machine.registry.has_key(rf"{LISTED}\{name}")


def _register(machine: Machine, folder: str) -> None:
    saved, registry = rf"{folder}\{_SAVED}", machine.registry
    if not registry.has_key(LISTED):
        raise RefusedByWindows(f"failed: Windows has no key {LISTED}")
    machine.files.write(saved, b"O:S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464D:PAI(A;CI;KR;;;BA)")
    registry.opened.add(LISTED.lower())
    try:
        _import(machine, rf"{folder}\registerplugin.reg")
    finally:
        registry.opened.discard(LISTED.lower())
        machine.files.remove(saved)


def _import(machine: Machine, path: str) -> None:
    if not machine.files.is_file(path):
        raise RefusedByWindows("failed: reg.exe ended with 1")
    if _FILE not in machine.files.read(path):
        raise UnknownCommandError(f"{path} is not a stand-in of this rehearsal, so its values are unknown")
    for key, name, data in (
        (rf"{CLASSES}\AppID\{APPLICATION}", "DllSurrogate", ""),
        (rf"{CLASSES}\CLSID\{CLASS}", "AppID", APPLICATION),
        (SERVER, "", DLL),
        (SERVER, "ThreadingModel", "Both"),
        (rf"{LISTED}\{CLASS}", "", ""),
    ):
        machine.registry.make_key(key)
        machine.registry.write(key, name, Value("String", data))
