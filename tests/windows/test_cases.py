"""The cases for Windows: what they cover, and which mistake each must notice. No case runs here."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.powershell.repository import script_paths
from tests.unit.test_docs_faults import rows
from tests.windows import render
from tests.windows.msi import make_msi
from tests.windows.render import BYTES, CASES, PLACE, STANDARD, Renderer, each_case, read_cases
from tests.windows.run import read_cases as read_rendered

REPOSITORY: Final = Path(__file__).parents[2]
FILES: Final = read_cases()
# Windows' own programs and commands that only read.
_READS: Final = re.compile(
    r"^(reg query|sc q|icacls|dir|type|fc|find|if exist|netsh .*show|schtasks /query|certutil -store|net user"
    r"|net localgroup|dism .*get-|winrm (get|enumerate)|tasklist|attrib|powershell\.exe .*\b(Get-|SizeMax))"
)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Each case as run.py reads it, for one build of Windows."""
    with pytest.MonkeyPatch.context() as patch:
        # Compressing hundreds of bundles takes most of the time, and changes no step.
        patch.setattr(render, "bundle_zip", lambda plan, files: plan + json.dumps(sorted(files)).encode())
        renderer = Renderer(tmp_path_factory.mktemp("cases"), lambda: b"a stand-in")
        renderer.builds = {"20348": "2022"}
        return {
            f"{file}/{name}": renderer.render(file, name, case)
            for file, given in FILES.items()
            for name, case in each_case(given)
        }


def test_each_script_has_a_file_of_cases() -> None:
    # The engine has a file for the effects of scripts too.
    subjects = [given["subject"] for name, given in FILES.items() if name != "effects"]
    assert sorted(subjects) == sorted(script_paths())


@pytest.mark.parametrize("file", FILES)
def test_each_file_has_the_cases_that_all_have(file: str, rendered: dict[str, dict[str, Any]]) -> None:
    wanted = [*STANDARD, *(["wrong bytes"] if Path(FILES[file]["subject"]).stem in BYTES else [])]
    assert [name for name in wanted if name not in FILES[file]["cases"]] == []
    for name in FILES[file]["cases"]:
        shown = [step["run"] for step in rendered[f"{file}/{name}"]["steps"] if isinstance(step.get("run"), str)]
        assert [line for line in shown if _READS.match(line)], f"{file}/{name} looks at nothing of Windows"


def test_each_expression_can_be_read(rendered: dict[str, dict[str, Any]]) -> None:
    for case in rendered.values():
        for step in case["steps"]:
            events = [event["reason"] for event in step.get("events", []) if event.get("reason")]
            for pattern in [*step.get("has", []), *step.get("lacks", []), *step.get("check", {}).values(), *events]:
                re.compile(pattern)


def test_no_line_needs_more_than_cmd_can_take(rendered: dict[str, dict[str, Any]]) -> None:
    """cmd.exe takes 8,191 characters, expands %NAME%, and ends a line at its end."""
    lines = [(name, line) for name, case in rendered.items() for line in lines_of(case)]
    assert [name for name, line in lines if len(line) > 8000 or "\n" in line or not line.isascii()] == []
    assert [name for name, line in lines if re.search("%[^%]+%", line)] == []


def lines_of(case: dict[str, Any]) -> list[str]:
    found = [*case["clean"]]
    for step in case["steps"]:
        line = step.get("run", "")
        found += line.values() if isinstance(line, dict) else [line]
    return found


def test_what_is_rendered_for_a_phase(rendered: dict[str, dict[str, Any]]) -> None:
    first = next(step for step in rendered["directory/before"]["steps"] if "events" in step)
    digest = "[0-9a-f]{64}"
    assert re.fullmatch(
        r"powershell\.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File C:/Windows/Temp/imagegen-start\.ps1 "
        r"-Phase phase-1 -Bundle C:\\Windows\\Temp\\imagegen-bundle\.zip "
        rf"-BundleSha256 {digest} -PlanSha256 {digest}",
        first["run"]["20348"],
    )
    assert first["events"][1] == {
        "event": "resource",
        "id": rf"case/directory:{PLACE}\a folder\below",
        "status": "changed",
        "reason": "there is no folder",
    }


class TestMutations:
    LIST: Final[list[dict[str, str]]] = render.read_yaml(CASES.parent / "mutations.yml")

    @pytest.mark.parametrize("edit", LIST, ids=lambda edit: edit["id"])
    def test_edit_applies_once_and_its_case_looks_at_it(self, edit: dict[str, str]) -> None:
        text = (REPOSITORY / edit["file"]).read_text("ascii")
        changed = edit["whole"] if "whole" in edit else text.replace(edit["old"], edit["new"])
        assert "whole" in edit or text.count(edit["old"]) == 1
        assert changed != text
        file, _, name = edit["case"].partition("/")
        assert name in FILES[file]["cases"]
        assert edit["file"] in (FILES[file]["subject"], *FILES[file].get("also", []))

    def test_each_planted_mistake_and_each_row_has_an_edit(self) -> None:
        known = {edit["id"].partition(" ")[0] for edit in self.LIST}
        planted = [
            f"{letter}{number}" for letter, last in (("F", 12), ("H", 7), ("G", 10)) for number in range(1, last + 1)
        ]
        of_faults = [name for name in rows() if re.fullmatch(r"[PR]\d+", name)]
        assert len(of_faults) >= 22
        assert [name for name in (*planted, *of_faults) if name not in known] == []


def test_a_package_of_the_cases_is_read_as_one_of_windows_installer() -> None:
    package = render.read_properties(io.BytesIO(make_msi("a product", "1.2.3", [(r"SOFTWARE\a", "Name", "text")])))
    assert (package["ProductName"], package["ProductVersion"]) == ("a product", "1.2.3")


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("go") is None, reason="Go is missing, which builds the stand-in")
def test_all_cases_are_rendered_for_each_build(tmp_path: Path) -> None:
    """Each file that a case names is there, and run.py reads them all."""
    assert render.main([str(tmp_path)]) == 0
    cases = read_rendered(tmp_path, [])
    assert len(cases) > 200
    assert {tuple(case["builds"]) for case in cases} == {("17763", "20348", "26100", "25398")}
    digests = set(re.findall(r"\"file\": \"([0-9a-f]{64})\"|\"[0-9]{5}\": \"([0-9a-f]{64})\"", json.dumps(cases)))
    assert {one or other for one, other in digests} <= {path.name for path in (tmp_path / "files").iterdir()}
    assert (tmp_path / "run.py").read_bytes() == (CASES.parent / "run.py").read_bytes()
