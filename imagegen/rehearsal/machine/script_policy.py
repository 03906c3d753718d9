"""The execution policy of Windows PowerShell: which scripts it runs and which modules it imports.

A policy of the machine decides over the option of a command line. Without one, Windows Server runs every script that
was not downloaded, and the model knows no others. Windows' own modules always load (PowerShell/PowerShell#5511).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.certificates import DISALLOWED, TRUSTED_PUBLISHER
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.signatures import NOT_SIGNED, VALID, show_signature
from imagegen.trust.block import is_script

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.signatures import Shown
    from imagegen.rehearsal.machine.windows import Machine

POLICY: Final = r"HKLM:\SOFTWARE\Policies\Microsoft\Windows\PowerShell"
ALL_SIGNED: Final = "AllSigned"
REFUSED: Final = 1
"""The exit code of powershell.exe if it does not run its script."""


def check_script(machine: Machine, path: str) -> None:
    """Raise an error if PowerShell does not run the script, or does not import the module."""
    if why := find_refusal(machine, path):
        raise RefusedByWindows(f"{path} cannot be loaded: {why}")


def find_refusal(machine: Machine, path: str) -> str:
    """Why PowerShell does not run a script. Empty if it does. The machine keeps what it refused."""
    why = _refusal(machine, path)
    if why:
        machine.refused[path] = why
    return why


def _refusal(machine: Machine, path: str) -> str:
    enabled, policy = machine.registry.number(POLICY, "EnableScripts"), machine.registry.text(POLICY, "ExecutionPolicy")
    if not is_script(path) or enabled is None:
        return ""
    if not enabled or policy == "Restricted":
        return "the policy of the machine allows no scripts"
    if policy != ALL_SIGNED:
        return ""
    fault = _find_fault(machine, show_signature(machine, machine.files.read(path), path))
    return f"{fault}, and the policy of the machine is {ALL_SIGNED}" if fault else ""


def _find_fault(machine: Machine, found: Shown) -> str:
    if found.status == NOT_SIGNED:
        return "it is not signed"
    if found.status != VALID or found.signer is None:
        return f"its signature is not valid ({found.status}: {found.message})"
    stores, publisher = machine.certificates, found.signer.sha1
    if publisher in stores.thumbprints(DISALLOWED) or publisher not in stores.thumbprints(TRUSTED_PUBLISHER):
        # Nobody answers the question whether it may run.
        return f"its publisher {found.signer.subject} is not in the store TrustedPublisher"
    return ""
