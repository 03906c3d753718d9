"""Windows updates on the model machine: rounds with restarts, what replaces what, and what Windows refuses."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from imagegen.base.contents import PACKER, ROLES
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.updates import (
    CURRENT_VERSION,
    DEFINITIONS,
    INSTALL_UPDATES_SHA256,
    PACKAGES,
    PERMANENT,
    REBOOT_REQUIRED,
    SECURITY,
    STAGED,
    Offer,
    find_packages,
)
from imagegen.steps.kinds import KINDS, POWERSHELL

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench, Fields

SCRIPT = ROLES.joinpath("updates/files/install-updates.ps1").read_bytes()
RECORD = r"C:\ProgramData\imagegen\updates\windows.json"
KEPT = r"C:\ProgramData\imagegen\updates\winhttp.txt"
PROXY = "http=proxy:3128;https=proxy:3128"
CODES = [{"code": "0x80070643", "means": "the installer failed"}, {"code": "0x80240016", "means": "a restart waits"}]


def fields(bench: Bench, **changes: Any) -> Fields:  # noqa: ANN401 - fields of any type
    source = bench.text("install-updates.ps1", SCRIPT)
    named = {"name": "windows", "source": source, "sha256": hashlib.sha256(SCRIPT).hexdigest()}
    return {**named, "rounds": 2, "categories": [SECURITY], "codes": CODES, **changes}


def pack(bench: Bench, rounds: int = 2, **changes: Any) -> None:  # noqa: ANN401 - fields of any type
    """A plan whose last phase only tests everything again."""
    resource = fields(bench, rounds=rounds, **changes)

    def phase(number: int) -> dict[str, Any]:
        entry = {"id": f"updates/update:windows (round {number})", "kind": "update", "fields": resource, "until": None}
        step = {"name": "updates", "summary": "s", "timeout_s": 60, "repeated": number < rounds, "resources": [entry]}
        return {"name": f"phase-{number}", "restart": True, "steps": [step]}

    last = {"name": f"phase-{rounds + 1}", "restart": False, "steps": []}
    bench.pack([*(phase(number) for number in range(1, rounds + 1)), last])


def run_all(bench: Bench, rounds: int = 2) -> list[tuple[str, str]]:
    """Each round with its restart, and the last phase. The status and reason of each round."""
    told = []
    for number in range(1, rounds + 1):
        outcome = bench.run(f"phase-{number}")
        assert outcome.exit_code in (0, 3010), outcome.output
        (event,) = bench.events(outcome, "resource")
        told.append((event["status"], event["reason"]))
        bench.machine.restart()
    bench.done(f"phase-{rounds + 1}")
    return told


def ubr(machine: Machine) -> int:
    return machine.registry.number(CURRENT_VERSION, "UBR") or 0


def facts(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = bench.kept("report.json")["resources"][-1]["facts"]
    return found


def test_a_later_round_finds_what_an_earlier_one_made_possible(bench: Bench) -> None:
    """The first cumulative update is replaced by the one that needs another update first. Its KB still counts."""
    pack(bench)
    assert run_all(bench) == [
        ("changed", "Windows Update was asked in 0 of 2 rounds"),
        ("changed", "Windows Update was asked in 1 of 2 rounds"),
    ]
    assert ubr(bench.machine) == 5519
    assert facts(bench) == {
        "rounds": 2,
        "asked": False,
        "ubr": 5519,
        "installed": ["KB9000001", "KB9000002", "KB9000003"],
        "lost": [],
        "missing": [],
        "proxy_left": False,
    }
    machine = bench.kept("report.json")["machine"]
    assert machine["ubr"] == 5519
    assert {"KB9000002", "KB9000003"} <= set(machine["updates"])
    assert ("KB9000001", 80, 5509) in [*find_packages(bench.machine)]


def test_a_plan_applied_twice_changes_nothing(bench: Bench) -> None:
    pack(bench)
    run_all(bench)
    before, searches = bench.snapshot(), bench.machine.updates.searches
    assert run_all(bench) == [("ok", ""), ("ok", "")]
    assert (bench.snapshot(), bench.machine.updates.searches) == (before, searches)
    assert bench.run("all", "-Check").exit_code == 0


def test_once_nothing_is_found_no_later_round_asks(bench: Bench) -> None:
    bench.machine.updates.offers = []
    pack(bench, rounds=3)
    statuses = [status for status, _ in run_all(bench, 3)]
    assert (statuses, bench.machine.updates.searches) == (["changed", "ok", "ok"], 1)


def test_what_a_killed_run_installed_ends_no_rounds(bench: Bench) -> None:
    """Nothing is found while that waits for a restart, and more may be found after it."""
    pack(bench)
    assert bench.run("phase-1").exit_code == 3010
    bench.machine.files.remove(RECORD)
    bench.machine.updates.asked = False
    run_all(bench)
    assert ubr(bench.machine) == 5519


def test_what_is_excluded_stays_out(bench: Bench) -> None:
    pack(bench, categories=[SECURITY, DEFINITIONS], exclude=["KB9000001", "KB9000003"])
    run_all(bench)
    assert (ubr(bench.machine), facts(bench)["installed"]) == (5499, ["KB9000002", "KB9000004"])


@pytest.mark.parametrize(("revision", "found"), [(5499, True), (4294, True), (5500, False), (None, True)])
def test_a_newer_revision_has_the_update(bench: Bench, revision: int | None, found: bool) -> None:
    """A cumulative update is not offered to a Windows that has it, or a later one. Any other number is."""
    if revision is not None:
        bench.machine.updates.offers = [Offer("KB5066782", ubr=4294)]
    pack(bench, categories=[], kbs=[{"kb": "KB5066782", "ubr": revision}])
    if found:
        run_all(bench)
        assert facts(bench)["installed"] == ([] if revision else ["KB5066782"])
        return
    bench.run("phase-1")
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert "KB5066782 is not installed, and Windows Update does not offer it" in outcome.output


def test_a_package_that_was_cleaned_up_is_there_by_its_revision(bench: Bench) -> None:
    pack(bench)
    run_all(bench)
    registry = bench.machine.registry
    for name in registry.subkeys(PACKAGES):
        if name.startswith("Package_for_RollupFix~") and "5509" in name:
            registry.remove_key(rf"{PACKAGES}\{name}")
    assert bench.run("all", "-Check").exit_code == 0
    registry.write(CURRENT_VERSION, "UBR", Value("DWord", 5508))
    outcome = bench.run("all", "-Check")
    assert outcome.exit_code == 5
    assert "KB9000001 was installed, and is no longer there" in outcome.output


def test_a_package_that_cannot_be_removed_is_there(bench: Bench) -> None:
    bench.machine.updates.offers = [Offer("KB9000002")]
    pack(bench)
    run_all(bench)
    (name,) = [name for name in bench.machine.registry.subkeys(PACKAGES) if "KB9000002" in name]
    bench.machine.registry.write(rf"{PACKAGES}\{name}", "CurrentState", Value("DWord", PERMANENT))
    assert bench.run("all", "-Check").exit_code == 0


def test_what_windows_takes_back_is_said(bench: Bench) -> None:
    bench.machine.updates.offers = [Offer("KB9000009", ubr=6000, rolls_back=True)]
    pack(bench, rounds=1)
    assert bench.run("phase-1").exit_code == 3010
    bench.machine.restart()
    assert ("KB9000009", STAGED, 6000) in [*find_packages(bench.machine)]
    drift = bench.run("all", "-Check")
    assert drift.exit_code == 5
    assert (
        "KB9000009 was installed, and is no longer there: Windows took it back, and has the revision 5499"
        in (bench.events(drift, "resource")[0]["reason"])
    )
    outcome = bench.run("phase-2")
    assert outcome.exit_code == 6
    assert "it was set and needs a restart, but the plan has none after phase-2" in outcome.output


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        (
            Offer("KB5034439", install_code="0x80070643"),
            "Windows Update could not install KB5034439, KB5034439: 0x80070643; 0x80070643 means: the installer failed",
        ),
        (Offer("KB1234567", download_code="0x80d02002"), "could not download KB1234567, KB1234567: 0x80d02002"),
    ],
)
def test_a_failure_has_windows_own_code(bench: Bench, offer: Offer, reason: str) -> None:
    """What was installed before stays, and the next try goes on from there."""
    bench.machine.updates.offers = [Offer("KB9000002", restarts=False), offer]
    pack(bench)
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert reason in bench.events(outcome, "resource")[0]["reason"]
    assert "KB9000002" in {kb for kb, state, _ in find_packages(bench.machine) if state == 112}
    assert not bench.machine.files.is_file(RECORD)
    bench.machine.updates.offers[1] = dataclasses.replace(offer, install_code="", download_code="")
    run_all(bench)
    assert facts(bench)["installed"] == [offer.kb]


def test_windows_installs_nothing_while_a_restart_is_pending(bench: Bench) -> None:
    """The engine refuses the first phase then: the restart before it ends what the base image left."""
    pack(bench)
    bench.machine.registry.make_key(REBOOT_REQUIRED)
    assert "the base image has a restart pending" in bench.run("phase-1").output
    bench.machine.restart()
    run_all(bench)
    bench.machine.registry.make_key(REBOOT_REQUIRED)
    ended = [*bench.machine.updates.install(bench.machine, [Offer("KB1")])]
    assert [(one.step, one.code) for one in ended] == [("install", "0x80240016")]


def test_the_proxy_is_winhttps_for_the_time_of_a_round(bench: Bench) -> None:
    updates = bench.machine.updates
    updates.needed_proxy, updates.proxy = PROXY, "http=own:1"
    pack(bench, proxy=PROXY, bypass="a;b")
    run_all(bench)
    assert (updates.proxy, ubr(bench.machine)) == ("http=own:1", 5519)


@pytest.mark.parametrize("proxy", [None, "http=other:1"])
def test_a_server_that_cannot_be_found_is_said(bench: Bench, proxy: str | None) -> None:
    bench.machine.updates.needed_proxy = PROXY
    pack(bench, proxy=proxy)
    assert "Windows Update failed: 0x8024402c" in bench.run("phase-1").output
    assert (bench.machine.updates.proxy, bench.machine.files.exists(KEPT)) == (None, False)


def test_the_proxy_of_a_killed_run_is_taken_back(bench: Bench) -> None:
    """The first run kept what WinHTTP had. The next one must not keep the build's proxy instead."""
    machine = bench.machine
    machine.files.make_folder(r"C:\ProgramData\imagegen\updates")
    machine.files.write(KEPT, b"http=own:1")
    machine.updates.proxy = PROXY
    pack(bench, proxy=PROXY)
    run_all(bench)
    assert (machine.updates.proxy, machine.files.exists(KEPT)) == ("http=own:1", False)


def test_an_interrupted_round_is_taken_up_again(bench: Bench) -> None:
    pack(bench)

    def stop(_: str) -> None:
        raise InterruptedError

    bench.machine.before_set = stop
    with pytest.raises(InterruptedError):
        bench.run("phase-1")
    bench.machine.before_set = lambda _: None
    assert [status for status, _ in run_all(bench)] == ["changed", "changed"]


def no_scheduler(machine: Machine) -> None:
    machine.services.stop("Schedule")


@pytest.mark.parametrize(
    ("spoil", "changes", "reason"),
    [
        (lambda m: m.files.remove(POWERSHELL), {}, f"cannot find {POWERSHELL}"),
        (no_scheduler, {}, "the task scheduler does not answer"),
        (lambda _: None, {"sha256": "0" * 64}, "the sha256 of files/step/install-updates.ps1 is"),
    ],
)
def test_what_the_task_needs(bench: Bench, spoil: Callable[[Machine], object], changes: Fields, reason: str) -> None:
    pack(bench, **changes)
    spoil(bench.machine)
    assert reason in bench.run("phase-1").output


def test_another_script_is_not_known(bench: Bench) -> None:
    other = SCRIPT + b"\n"
    source = bench.text("other.ps1", other)
    pack(bench, source=source, sha256=hashlib.sha256(other).hexdigest())
    assert "the rehearsal does not know what files/step/other.ps1 does" in bench.run("phase-1").output


def test_the_script_is_the_one_that_the_model_knows() -> None:
    assert hashlib.sha256(SCRIPT).hexdigest() == INSTALL_UPDATES_SHA256


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"categories": []}, "must have categories or kbs"),
        ({"categories": ["security"]}, "should match pattern"),
        ({"rounds": 0}, "greater than or equal to 1"),
        ({"kbs": [{"kb": "5066782"}]}, "should match pattern"),
        ({"exclude": ["KB1"]}, "should match pattern"),
        ({"proxy": 'a"b'}, "should match pattern"),
        ({"proxy": ""}, "at least 1 character"),
        ({"bypass": "a b"}, "should match pattern"),
        ({"codes": [{"code": "0x8007064G", "means": "x"}]}, "should match pattern"),
    ],
)
def test_fields(bench: Bench, changes: Fields, why: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)):
        KINDS["update"].model_validate(fields(bench, **changes))


def test_script_and_model_keep_the_same_things() -> None:
    """The paths, the states of packages and the names of the facts."""
    script = (PACKER / "guest" / "kinds" / "update.ps1").read_text("ascii")
    assert script.count(r"'C:\ProgramData\imagegen\updates'") == 2
    assert "$states = 80, 112, 128\n        if (Test-RestartPending) { $states += 96, 101 }\n" in script
    assert "if (@($told.found).Count -eq 0 -and -not (Test-RestartPending)) {" in script
    found = re.findall(r"(\w+) = ", script.partition("[ordered]@{")[2].partition("}")[0])
    assert found == ["rounds", "asked", "ubr", "installed", "lost", "missing", "proxy_left"]
    assert "Invoke-AsSystem -Name 'imagegen-updates'" in script
    assert script.index("winhttp set proxy") < script.index("finally {") < script.index("DeleteValue('WinHttpSettings'")
