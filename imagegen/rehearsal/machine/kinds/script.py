"""A PowerShell script that runs once, on the model machine. The model does not run it: it takes it as run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.kinds.kind import digest
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.machine.signatures import check_signature
from imagegen.steps.kinds import POWERSHELL, RESTART_NEEDED

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Script

MARKS = HOME + r"\scripts"


def get(machine: Machine, wanted: Script) -> Facts | None:
    path = _mark(wanted)
    if not machine.files.is_file(path):
        return None
    # A run that was killed may have left a part of it.
    try:
        found = json.loads(machine.files.read(path))
        return {"sha256": found["sha256"], "arguments": list(found["arguments"]), "exit_code": found["exit_code"]}
    except (ValueError, KeyError, TypeError):
        return None


def test(_machine: Machine, wanted: Script, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"the script {wanted.name} has not run"]
    reasons = []
    if facts["sha256"] != wanted.sha256:
        reasons.append(f"it ran with sha256 {facts['sha256']}, not {wanted.sha256}")
    if facts["arguments"] != wanted.arguments:
        ran, planned = " ".join(facts["arguments"]), " ".join(wanted.arguments)
        reasons.append(f"it ran with the arguments '{ran}', not '{planned}'")
    if facts["exit_code"] not in wanted.good_exit_codes:
        reasons.append(f"it ended with {facts['exit_code']}, not with {_codes(wanted)}")
    return reasons


def put(machine: Machine, wanted: Script, supplies: Supplies) -> bool:
    if not machine.files.is_file(POWERSHELL):
        raise RefusedByWindows(f"cannot find {POWERSHELL}")
    if (found := digest(machine.files.read(f"{supplies.bundle}\\{wanted.source}"))) != wanted.sha256:
        raise RefusedByWindows(f"the sha256 of {wanted.source} is {found}, not {wanted.sha256}")
    check_signature(machine, machine.files.read(f"{supplies.bundle}\\{wanted.source}"), wanted.source, supplies)
    check_script(machine, f"{supplies.bundle}\\{wanted.source}")
    usual = 0 if 0 in wanted.good_exit_codes else wanted.good_exit_codes[0]
    code = machine.script_exit_codes.get(wanted.name, usual)
    if code not in wanted.good_exit_codes:
        raise RefusedByWindows(f"{wanted.name} ended with {code}, not with {_codes(wanted)}")
    machine.files.make_folder(MARKS)
    mark = {"sha256": wanted.sha256, "arguments": wanted.arguments, "exit_code": code}
    machine.files.write(_mark(wanted), json.dumps(mark).encode())
    return code == RESTART_NEEDED


def _mark(wanted: Script) -> str:
    return f"{MARKS}\\{wanted.name}.json"


def _codes(wanted: Script) -> str:
    return " or ".join(map(str, wanted.good_exit_codes))
