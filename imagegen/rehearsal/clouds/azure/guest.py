"""The two agents in Azure's Windows images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.agents import Agents
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import AUTOMATIC

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

GUEST_AGENT: Final = "WindowsAzureGuestAgent"
_UNATTEND = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\conf\Unattend.xml"
_SETUP_SCRIPTS = r"C:\Windows\Setup\Scripts"
# Service and program.
_PROGRAMS = {
    "RdAgent": r"C:\WindowsAzure\GuestAgent\WaAppAgent.exe",
    GUEST_AGENT: rf"C:\WindowsAzure\GuestAgent\{GUEST_AGENT}.exe",
}


# For each extension a key with its name and version.
STATE: Final = r"HKLM:\SOFTWARE\Microsoft\Windows Azure\HandlerState"
_EXTENSION = r"Microsoft.Compute.CustomScriptExtension\1.10.20"
_LOGS = r"C:\WindowsAzure\Logs"


def _check(machine: Machine) -> None:
    if not machine.files.is_file(_UNATTEND):
        raise RefusedByWindows(f"there is no {_UNATTEND}")
    for name in _PROGRAMS:
        if not machine.services.is_running(name):
            raise RefusedByWindows(f"service {name} is not running")


def _prepare_account(machine: Machine) -> None:
    """The builder's account is the built-in administrator: its password no longer expires, and first-boot.ps1 closes
    the account on a node."""
    machine.accounts.passwords_expire = False
    machine.files.make_folder(_SETUP_SCRIPTS)
    machine.files.write(rf"{_SETUP_SCRIPTS}\accounts.txt", b"500\r\n")


AGENTS: Final = Agents(
    services=tuple((name, name, program, AUTOMATIC, ()) for name, program in _PROGRAMS.items()),
    files=tuple(_PROGRAMS.values()),
    folders=(_LOGS,),
    check=_check,
    # As the custom script extension leaves them, which a policy of the subscription can add to every machine.
    leftovers=(
        rf"C:\Packages\Plugins\{_EXTENSION}\bin\CustomScriptHandler.exe",
        rf"C:\Packages\Plugins\{_EXTENSION}\Downloads\0\prepare.ps1",
        rf"C:\Packages\Plugins\{_EXTENSION}\RuntimeSettings\0.settings",
        r"C:\AzureData\CustomData.bin",
        rf"{_LOGS}\Plugins\{_EXTENSION}\CustomScriptHandler.log",
        rf"{_LOGS}\WaAppAgent.log",
    ),
    left_folders=((r"C:\Packages\Plugins", "*"), ("C:\\", "Packages"), ("C:\\", "AzureData")),
    logs=_LOGS,
    extensions=r"C:\Packages\Plugins",
    state=STATE,
    traces=(
        ("a file of an extension", r"c:\packages\*"),
        ("custom data of the builder", r"c:\azuredata\*"),
        ("a log of an extension", r"c:\windowsazure\logs\plugins\*"),
    ),
    trims=True,
    open_files={rf"{_LOGS}\WaAppAgent.log": "RdAgent"},
    answer_file=_UNATTEND,
    administrator="packer",
    reset=_prepare_account,
)
