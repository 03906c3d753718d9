"""The module that scripts on a node import. The image has it beside them."""

from __future__ import annotations

import ntpath
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import check_script

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

MODULE: Final = "common.psm1"


def need_module(machine: Machine, script: str) -> None:
    path = rf"{ntpath.dirname(script)}\{MODULE}"
    if not machine.files.is_file(path):
        raise RefusedByWindows(f"The specified module '{path}' was not loaded because no valid module file was found.")
    check_script(machine, path)
