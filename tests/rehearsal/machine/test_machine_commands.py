"""Programs of Windows that show and change settings: each setting shows in the output afterwards."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from imagegen.base.contents import PACKER
from imagegen.rehearsal.machine.commands import run_program
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC
from imagegen.rehearsal.machine.time_zone import write_time_zone
from imagegen.rehearsal.machine.triggers import DOMAIN_JOINED, NOT_IN_A_DOMAIN, Trigger, read_triggers, write_triggers
from imagegen.steps.kinds import KINDS

if TYPE_CHECKING:
    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench, Fields

HIGH = "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c"
RANGE = "int ipv4 {} dynamicportrange protocol={}"
EXCLUDED = "int ipv4 {} excludedportrange protocol={}"
PORTS = " startport={} numberofports={} store=persistent"
USED = "used by another process"


def run(machine: Machine, line: str) -> tuple[int, str]:
    program, _, arguments = line.partition(" ")
    return run_program(machine, rf"C:\Windows\System32\{program}.exe", arguments)


@pytest.mark.parametrize(
    ("change", "show", "before", "after"),
    [
        ('tzutil /s "W. Europe Standard Time"', "tzutil /g", "UTC", "W. Europe Standard Time"),
        ('tzutil /s "w. europe standard time"', "tzutil /g", "UTC", "W. Europe Standard Time"),
        ("tzutil /s UTC_dstoff", "tzutil /g", "UTC", "UTC_dstoff"),
        (f"powercfg /setactive {HIGH}", "powercfg /getactivescheme", "381b4222-f694", HIGH),
        (
            f"netsh {RANGE.format('set', 'tcp')}{PORTS.format(16385, 49151)}",
            f"netsh {RANGE.format('show', 'tcp')}",
            "49152",
            "16385",
        ),
        (
            f"netsh {RANGE.format('set', 'udp')}{PORTS.format(2000, 255)}",
            f"netsh {RANGE.format('show', 'udp')}",
            ": 16384",
            ": 255",
        ),
        (
            f"netsh {EXCLUDED.format('add', 'udp')}{PORTS.format(65330, 1)}",
            f"netsh {EXCLUDED.format('show', 'udp')} store=persistent",
            "End Port",
            "65330       65330 ",
        ),
        ("sc triggerinfo W32Time delete", "sc qtriggerinfo W32Time", NOT_IN_A_DOMAIN.event_id, "not registered"),
    ],
)
def test_a_change_shows(bench: Bench, change: str, show: str, before: str, after: str) -> None:
    code, output = run(bench.machine, show)
    assert (code, before in output, after in output) == (0, True, False)
    assert run(bench.machine, change)[0] == 0
    bench.machine.restart()
    code, output = run(bench.machine, show)
    assert (code, after in output) == (0, True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("tzutil /s Nowhere", "there is no time zone 'Nowhere'"),
        (f"powercfg /setactive {HIGH[:-1]}0", "does not exist"),
        (f"netsh {RANGE.format('set', 'tcp')}{PORTS.format(1024, 300)}", "incorrect"),
        (f"netsh {RANGE.format('set', 'tcp')}{PORTS.format(60000, 254)}", "incorrect"),
        (f"netsh {RANGE.format('set', 'tcp')}{PORTS.format(16386, 49151)}", "incorrect"),
        (f"netsh {EXCLUDED.format('add', 'tcp')}{PORTS.format(65535, 2)}", "incorrect"),
        (f"netsh {EXCLUDED.format('add', 'tcp')}{PORTS.format(0, 1)}", "incorrect"),
        (f"netsh {EXCLUDED.format('add', 'tcp')}{PORTS.format(1, 0)}", "incorrect"),
        (f"netsh {EXCLUDED.format('add', 'tcp')}{PORTS.format(29000, 2000)}", USED),
        (f"netsh {EXCLUDED.format('add', 'udp')}{PORTS.format(5300, 100)}", USED),
        ("sc qtriggerinfo nobody", "1060"),
        ("sc triggerinfo nobody delete", "1060"),
    ],
)
def test_windows_refuses(bench: Bench, line: str, why: str) -> None:
    assert run(bench.machine, f"netsh {EXCLUDED.format('add', 'tcp')}{PORTS.format(30000, 2768)}")[0] == 0
    bench.machine.ports.in_use["udp"].add(5353)
    code, output = run(bench.machine, line)
    assert (code, why in output) == (1, True)


def test_the_model_knows_the_task_of_routes(bench: Bench) -> None:
    route, find = (rf"C:\Windows\System32\{name}.exe" for name in ("route", "find"))
    line = (
        f"cmd /d /c for %a in (169.254.169.254 169.254.169.123) do ({route} -4 print %a | "
        f'{find} "%a" || {route} add %a mask 255.255.255.255 0.0.0.0)'
    )
    assert run(bench.machine, line)[0] == 0


def test_a_start_ends_the_time_service_outside_a_domain(bench: Bench) -> None:
    """Also if it is automatic (Microsoft's KB 2385818)."""
    machine = bench.machine
    machine.services.configure("W32Time", "Start", Value("DWord", AUTOMATIC))
    machine.services.start("W32Time")
    machine.restart()
    assert not machine.services.is_running("W32Time")
    write_triggers(machine, "W32Time", (DOMAIN_JOINED,))
    machine.restart()
    assert machine.services.is_running("W32Time")
    assert [Trigger(3, 1)] == read_triggers(machine, "W32Time")


COMMAND: Fields = {
    "name": "c",
    "program": r"C:\Windows\System32\tzutil.exe",
    "arguments": "/s Nowhere",
    "unless": {"arguments": "/g", "matches": [r"\AUTC\Z"]},
    "good_exit_codes": [0],
}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unless": {"arguments": "/g", "matches": []}}, "unless.matches"),
        ({"unless": {"arguments": "/g", "matches": [""]}}, "unless.matches.0"),
        ({"unless": {"arguments": "/g", "matches": ["("]}}, "is not a regular expression"),
        ({"unless": {"arguments": "/g", "matches": ["(?P<a>x)"]}}, "which .NET does not know"),
        ({"unless": {"arguments": " /g", "matches": ["x"]}}, "unless.arguments"),
        ({"arguments": "a\nb"}, "arguments"),
        ({"good_exit_codes": []}, "good_exit_codes"),
        ({"good_exit_codes": [-1]}, "good_exit_codes.0"),
        ({"program": "tzutil.exe"}, "program"),
    ],
)
def test_a_command_that_windows_could_not_judge_is_invalid(changes: Fields, why: str) -> None:
    KINDS["command"].model_validate(COMMAND)
    with pytest.raises(ValidationError, match=re.escape(why)):
        KINDS["command"].model_validate({**COMMAND, **changes})


def test_a_command_needs_its_program() -> None:
    assert KINDS["command"].model_validate(COMMAND).needs() == (COMMAND["program"],)


@pytest.mark.parametrize(("codes", "reason"), [([0], "ended with 1"), ([0, 1], "not as planned after it was set")])
def test_only_good_exit_codes_are_good(bench: Bench, codes: list[int], reason: str) -> None:
    write_time_zone(bench.machine.registry, "Tokyo Standard Time")
    bench.bundle({"phase-1": [("command", {**COMMAND, "good_exit_codes": codes})]})
    assert reason in bench.events(bench.run("phase-1"), "phase")[-1]["reason"]


def test_the_script_and_the_model_give_the_same_reasons() -> None:
    script = (PACKER / "guest" / "kinds" / "command.ps1").read_text("ascii")
    said = re.findall(r'\{ "([^"]+)" \}', script)
    assert said == [
        "$($Resource.name): the output of '$($Resource.program) $($Resource.unless.arguments)' does not match "
        "$($patterns[$index])"
    ]
    assert "[regex]::IsMatch($output, $pattern)" in script
