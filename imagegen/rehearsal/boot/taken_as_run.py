"""Scripts of PowerShell are taken as run: nothing interprets them, and the verdict lists them as not checked."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.boot.model import Ended
from imagegen.rehearsal.boot.programs import full_path, is_file
from imagegen.rehearsal.machine.script_policy import find_refusal

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.model import Process
    from imagegen.rehearsal.machine.windows import Machine

# What powershell.exe ends with if there is no such script.
_NO_SCRIPT: Final = -196608
_REFUSED: Final = 1


def run_powershell(process: Process, unchecked: list[str]) -> Ended:
    """powershell.exe, which adds to `unchecked` what it would have run."""
    words = list(process.arguments[1:])
    scripts = [after for word, after in itertools.pairwise(words) if word.lower() == "-file"]
    scripts = scripts or [word for word in words[:1] if word.lower().endswith(".ps1")]
    if not scripts:
        # Its text may hold a secret.
        unchecked.append("the PowerShell commands on command lines of the user data")
        return Ended(0)
    path = full_path(process.folder, scripts[0])
    if not is_file(process.machine, path):
        return Ended(_NO_SCRIPT, f"The argument '{path}' to the -File parameter does not exist.\r\n")
    if why := find_refusal(process.machine, path):
        return Ended(_REFUSED, f"{path} cannot be loaded: {why}\r\n")
    taken_as_run(process.machine, path)
    unchecked.append(f"what the script {path} does")
    return Ended(0)


def taken_as_run(_machine: Machine, _script: str) -> None:
    """The effects of a script that are so from now on. A script of the image declares none that a first boot needs."""
