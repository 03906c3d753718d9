"""Every PowerShell file of the repository, judged by every rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imagegen.steps.kinds import PLANNED_KINDS
from tests.powershell.reader import Script
from tests.powershell.repository import ROOT, RULES, script, script_paths
from tests.powershell.rules_types import process_types, waits_have_a_time
from tests.powershell.rules_words import called_values, careful_parameters
from tests.powershell.tables import (
    COMPILING_SCRIPTS,
    DIRECT_NATIVE,
    ENTRY_SCRIPTS,
    FALSE_ALARMS,
    PROCESS_SCRIPTS,
    UNTIMED_SCRIPTS,
)

if TYPE_CHECKING:
    from tests.powershell.cases import Rule

PATHS = script_paths()
TELL_REASONS = '& $part | ForEach-Object -Process { $code = 1; [System.Console]::Out.WriteLine("failed: $_") }'


def test_the_engine_is_there_and_one_script_for_each_kind() -> None:
    kinds = {path.rsplit("/", 1)[-1].removesuffix(".ps1") for path in PATHS if path.startswith("packer/guest/kinds/")}

    assert {"packer/guest/start.ps1", "packer/guest/engine.psm1"} <= set(PATHS)
    assert kinds == PLANNED_KINDS


# Not one test for each rule and script: hundreds of tests cost more than the rules themselves.
@pytest.mark.parametrize("path", PATHS)
def test_script_obeys_every_rule(path: str) -> None:
    found = [f"{fault} ({rule.__name__})" for rule in RULES for fault in rule(script(path))]

    assert not found, "\n".join(found)


def test_first_boot_removes_each_thing_by_itself() -> None:
    """What cannot be removed is one line of the log, and keeps nothing else."""
    text = (ROOT / "ansible-win/roles/cloudbase-init/files/first-boot.ps1").read_text("ascii")
    alone = re.findall(
        r"\n +try \{ [^\n]*\b(Remove-\w+) [^\n]*-ErrorAction Stop \}+\n +catch \{\s", text.replace("} }\n", "}}\n")
    )

    # A rule that is made anew may be missing before.
    others = text.replace("Remove-NetFirewallRule -Name $wanted.rule -ErrorAction SilentlyContinue", "")
    assert (
        alone
        == re.findall(r"\bRemove-\w+", others)
        == [*("Remove-NetFirewallRule", "Remove-Item", "Remove-CimInstance")]
    )
    assert f"try {{ {TELL_REASONS} }}" in text


def test_files_come_into_place_by_one_way() -> None:
    """An archive is never unpacked over what is there: it cannot replace a running program, and stops halfway."""
    archive, file = ((ROOT / f"packer/guest/kinds/{kind}.ps1").read_text("ascii") for kind in ("archive", "file"))

    assert "'-C', $staging)" in (ROOT / "packer/guest/common.psm1").read_text("ascii")
    assert [text.count("Expand-Artifact -Context $Context") for text in (archive, file)] == [1, 1]
    assert [text.count("Copy-IntoPlace -From") for text in (archive, file)] == [1, 2]
    assert "[System.IO.File]::" not in re.sub(r"File\]::Exists", "", archive + file)


def test_waivers_name_what_is_there() -> None:
    names = {path.rsplit("/", 1)[-1] for path in PATHS}
    lines = {path: {line.strip() for line in (ROOT / path).read_text("ascii").splitlines()} for path in PATHS}

    assert {*ENTRY_SCRIPTS, *COMPILING_SCRIPTS, *DIRECT_NATIVE, *PROCESS_SCRIPTS, *UNTIMED_SCRIPTS} <= names
    assert [waiver for waiver in FALSE_ALARMS if waiver[1] not in lines.get(waiver[0], set())] == []


@pytest.mark.parametrize(
    ("waived", "rule"),
    [
        (DIRECT_NATIVE, called_values),
        (PROCESS_SCRIPTS, process_types),
        (UNTIMED_SCRIPTS, waits_have_a_time),
        (COMPILING_SCRIPTS, careful_parameters),
    ],
    ids=["direct native", "processes", "untimed", "compiling"],
)
def test_waivers_are_needed(waived: dict[str, str], rule: Rule) -> None:
    for name in waived:
        (path,) = [path for path in PATHS if path.endswith(f"/{name}")]
        assert rule(Script(f"packer/guest/not-{name}", (ROOT / path).read_bytes())) != []
