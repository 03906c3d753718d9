"""A scheduled task: the script and the model make the same one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from imagegen.base.contents import PACKER
from imagegen.rehearsal.machine.stock import TIME_SERVICE
from imagegen.rehearsal.machine.tasks import HINDERING_BY_DEFAULT, HINDRANCES
from imagegen.steps.kinds import KINDS
from tests.rehearsal.machine.test_machine_kinds import FACTS, TASK

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from tests.rehearsal.machine.conftest import Bench

COMMON = (PACKER / "guest" / "common.psm1").read_text("ascii")
REGISTER = COMMON[COMMON.index("\nfunction Register-SystemTask {") :].partition("\n}\n")[0]


def test_the_script_makes_the_models_task() -> None:
    """Of these alone the model says that a task is as planned. The name is how it is found."""
    script = (PACKER / "guest" / "kinds" / "task.ps1").read_text("ascii")
    get, test, put = re.split(r"\n    (?:Test =|Set  =) ", script)
    assert "Register-SystemTask -Name $Resource.name" in put
    put += REGISTER
    task: dict[str, Any] = {name: value for name, value in FACTS["task"].items() if value is not True}
    fixed = {name: f"'{value}'" if isinstance(value, str) else str(value) for name, value in task.items()}
    planned = {**fixed, "repeats_for_s": "$null", **{name: f"$Resource.{name}" for name in TASK}}
    planned |= {"triggers": "$trigger", "start": "$start"}
    by_time = f"{{ '{task['triggers']}', '{task['start']}' }}"
    assert f"$trigger, $start = if ($null -ne $Resource.every_s) {by_time} else {{ 'BootTrigger', '' }}" in test
    assert dict(re.findall(r"@\('(\w+)', ([^()]+)\)", test)) == planned
    values = dict(re.findall(r"@\('(\w+)', '[^']+', ([^()]+)\)", get))
    names = {name.lower() for name in re.findall(r"'(Triggers|Actions)'", get)}
    assert {*values, *names, *re.findall(r"\$found\.(\w+) = ", get)} == set(FACTS["task"])
    defaults = {"delay_s": "0", "limit_s": str(3 * 86400), "parallel": "'IgnoreNew'", "priority": "7"}
    assert defaults.items() <= values.items()
    xml = {"StartBoundary": "start", "MultipleInstancesPolicy": "parallel", "Priority": "priority", "UserId": "account"}
    assert [name for name in xml if f"<{name}>{task[xml[name]]}</{name}>" not in put] == []
    assert "$trigger = '<BootTrigger />'" in put
    assert f"if ($null -ne $Resource.every_s) {{ $trigger = '<{task['triggers']}><Repetition>" in put
    assert '-Triggers "<Triggers>$trigger</Triggers>"' in put


def test_a_task_at_the_start_of_windows(bench: Bench) -> None:
    """A task of times in its place is found, and replaced."""
    at_start = {name: value for name, value in TASK.items() if name != "every_s"}
    bench.machine.files.make_folder(TASK["program"].rpartition("\\")[0])
    bench.machine.files.write(TASK["program"], b"x")
    bench.bundle({"phase-1": [("task", {"name": "t", **TASK})]})
    bench.done("phase-1")
    bench.bundle({"phase-1": [("task", {"name": "t", **at_start})]})
    found = bench.events(bench.run("phase-1", "-Check"), "resource")[0]["reason"]
    assert found.startswith("triggers is TimeTrigger, not BootTrigger; ")
    assert "; start is 2020-01-01T00:00:00Z, not " in found
    assert "every_s is 600, not None" in found
    bench.done("phase-1")
    facts = bench.kept("report.json")["resources"][0]["facts"]
    assert (facts["triggers"], facts["start"], facts["every_s"]) == ("BootTrigger", "", None)


def test_the_report_has_the_facts_in_the_order_of_the_script(bench: Bench) -> None:
    get = (PACKER / "guest" / "kinds" / "task.ps1").read_text("ascii").partition("\n    Test =")[0]
    written = [*re.findall(r"@\('(\w+)', '/Task", get), *re.findall(r"\$found\.(enabled|unconditional) = ", get)]
    bench.bundle({"phase-1": [("task", {"name": "imagegen-a", **TASK})]})
    bench.done("phase-1")
    assert [*bench.kept("report.json")["resources"][0]["facts"]] == ["triggers", "actions", *written]


def test_the_time_service_has_the_command_of_windows(stock: Machine) -> None:
    assert stock.services.command(TIME_SERVICE) == r"%SystemRoot%\system32\svchost.exe -k LocalService"


def test_the_script_knows_the_models_hindrances() -> None:
    script = (PACKER / "guest" / "kinds" / "task.ps1").read_text("ascii")
    hinders, planned = re.findall(r'unconditional = [^"]+"not\(([^)]+)\)" \+\s+" and ([^"]+)"\)', script)[0]
    settings = re.compile(r"/Task/Settings/(\w+) = '(\w+)'")
    never_given = {name: value for name, value in HINDRANCES.items() if name not in HINDERING_BY_DEFAULT}
    assert dict(settings.findall(hinders)) == never_given
    assert hinders.count(" or ") == len(never_given) - 1
    assert settings.findall(planned) == [(name, "false") for name in HINDERING_BY_DEFAULT]
    assert settings.sub("", planned) == " and "
    given = dict(re.findall(rf"<({'|'.join(HINDRANCES)})>(\w+)</", REGISTER))
    assert given == dict.fromkeys(HINDERING_BY_DEFAULT, "false")


@pytest.mark.parametrize(
    ("arguments", "is_valid"),
    [
        ("x", True),
        ("-a  b", True),
        ("", False),
        (" x", False),
        ("x ", False),
        ("a\nb", False),
        ("a\tb", False),
        ("\x01", False),
    ],
)
def test_a_task_has_arguments_that_windows_returns_as_they_are(arguments: str, *, is_valid: bool) -> None:
    fields = {**TASK, "name": "t", "arguments": arguments}
    if is_valid:
        assert dict(KINDS["task"].model_validate(fields))["arguments"] == arguments
    else:
        with pytest.raises(ValidationError, match="arguments"):
            KINDS["task"].model_validate(fields)
