"""Each rule of docs/guest.md that is the engine's own: order, restarts, resuming, event lines."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.machine import run_entry
from imagegen.rehearsal.machine.access import effective
from imagegen.rehearsal.machine.features import REBOOT_PENDING
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.updates import REBOOT_REQUIRED
from tests.rehearsal.machine.conftest import run_and_end

if TYPE_CHECKING:
    from tests.rehearsal.machine.conftest import Bench

HOME = r"C:\ProgramData\imagegen"
CONTAINERS = ("feature", {"name": "Containers"})


# ---- phases and restarts


def test_phases_restart_and_report(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a"), CONTAINERS], "phase-2": [bench.folder(r"C:\k")]}, restarts=["phase-1"])
    first = bench.run("phase-1")
    assert first.exit_code == 3010
    assert bench.statuses(bench.events(first)) == [
        ("phase", "started"), ("resource", "changed"), ("resource", "changed"), ("phase", "finished"),
    ]  # fmt: skip
    finished = bench.events(first)[-1]
    assert {**finished, "ms": 0} == {
        "event": "phase", "phase": "phase-1", "status": "finished", "resources": 2, "changed": 2, "restart": True,
        "ms": 0, "reason": "",
    }  # fmt: skip
    bench.machine.restart()
    second = bench.done("phase-2")
    assert bench.statuses(second) == [
        ("phase", "started"), ("resource", "changed"), ("report", ""), ("phase", "finished"),
    ]  # fmt: skip
    report = bench.kept("report.json")
    assert report["plan_sha256"] == bench.pins["-PlanSha256"]
    assert report["machine"] == {
        "product": "Windows Server 2022 Datacenter", "edition": "ServerDatacenter", "installation": "Server Core",
        "build": 20348, "ubr": 5499, "updates": ["KB5082142"],
    }  # fmt: skip
    assert [(phase["name"], phase["status"], phase["changed"], phase["restart"]) for phase in report["phases"]] == [
        ("phase-1", "finished", 2, True), ("phase-2", "finished", 1, False),
    ]  # fmt: skip
    assert [(one["id"], one["phase"], one["step"], one["kind"], one["status"]) for one in report["resources"]] == [
        (r"phase-1-step/registry:HKLM:\SOFTWARE\Test\a", "phase-1", "phase-1-step", "registry", "changed"),
        ("phase-1-step/feature:Containers", "phase-1", "phase-1-step", "feature", "changed"),
        (r"phase-2-step/directory:C:\k", "phase-2", "phase-2-step", "directory", "changed"),
    ]
    data = bench.machine.files.read(rf"{HOME}\report.json")
    assert second[2] == {"event": "report", "path": rf"{HOME}\report.json", "sha256": hashlib.sha256(data).hexdigest()}


def test_a_phase_out_of_order_is_refused(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")], "phase-2": [bench.value("b")]})
    outcome = bench.run("phase-2")
    assert (outcome.exit_code, "phase-1 is not finished" in outcome.output) == (6, True)
    assert not bench.machine.registry.has_key(r"HKLM:\SOFTWARE\Test")


def test_a_phase_that_failed_is_not_finished(bench: Bench) -> None:
    bench.bundle({"phase-1": [("directory", {"path": r"D:\x"})], "phase-2": [bench.value("b")]})
    assert bench.run("phase-1").exit_code == 6
    outcome = bench.run("phase-2")
    assert (outcome.exit_code, "phase-1 is not finished" in outcome.output) == (6, True)


def test_the_state_of_another_plan_is_discarded(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")], "phase-2": [bench.value("b")]})
    bench.done("phase-1")
    bench.bundle({"phase-1": [bench.value("a")], "phase-2": [bench.value("c")]})
    outcome = bench.run("phase-2")
    assert outcome.exit_code == 6
    assert rf"discarded {HOME}\state.json: it is the state of another plan" in outcome.output.splitlines()


def test_a_restart_that_was_not_taken_is_refused(bench: Bench) -> None:
    bench.bundle({"phase-1": [CONTAINERS], "phase-2": [bench.value("b")]}, restarts=["phase-1"])
    assert bench.run("phase-1").exit_code == 3010
    outcome = bench.run("phase-2")
    assert (outcome.exit_code, "the one after phase-1 was not taken" in outcome.output) == (6, True)
    assert bench.run("phase-1").exit_code == 3010
    bench.machine.restart()
    bench.done("phase-2")


@pytest.mark.parametrize(("marks_stay_s", "exit_code"), [(30, 0), (200, 6)])
def test_a_restart_that_windows_still_finishes_is_waited_for(bench: Bench, marks_stay_s: int, exit_code: int) -> None:
    bench.bundle({"phase-1": [CONTAINERS], "phase-2": [bench.value("b")]}, restarts=["phase-1"])
    assert bench.run("phase-1").exit_code == 3010
    bench.machine.marks_stay_s = marks_stay_s
    bench.machine.restart()
    assert bench.run("phase-2").exit_code == exit_code


@pytest.mark.parametrize("key", [REBOOT_PENDING, REBOOT_REQUIRED])
def test_a_base_image_with_a_restart_pending_is_refused(bench: Bench, key: str) -> None:
    bench.machine.registry.make_key(key)
    bench.bundle({"phase-1": [bench.value("a")], "phase-2": [bench.value("b")]}, restarts=["phase-1"])
    outcome = bench.run("phase-1")
    assert (outcome.exit_code, "or windows.updates, whose build begins with a restart" in outcome.output) == (6, True)
    assert not bench.machine.registry.has_key(r"HKLM:\SOFTWARE\Test")
    bench.machine.restart()
    assert bench.run("phase-1").exit_code == 0


def test_a_restart_that_is_due_where_none_follows_fails(bench: Bench) -> None:
    bench.bundle({"phase-1": [CONTAINERS], "phase-2": [bench.value("b")]})
    assert bench.run("phase-1").exit_code == 6
    again = bench.run("phase-1")
    assert (again.exit_code, "in the middle of phase-1, but the plan has none there" in again.output) == (6, True)
    assert bench.run("phase-2").exit_code == 6
    bench.machine.restart()
    assert bench.run("phase-1").exit_code == 0
    bench.done("phase-2")
    assert [one["status"] for one in bench.kept("report.json")["resources"]] == ["changed", "changed"]


def test_a_restart_that_no_resource_asked_for_fails_where_none_follows(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.binary("tool")], "phase-2": [bench.value("b")]})
    bench.machine.files.make_folder(r"C:\k")

    def fetch(*_: str | None) -> bytes:
        bench.machine.registry.make_key(REBOOT_REQUIRED)
        return b"MZ"

    outcome = run_entry(bench.machine, bench.arguments("phase-1"), fetch)
    assert (outcome.exit_code, "but the plan has none there" in outcome.output) == (6, True)


def test_a_restart_called_for_by_a_failed_run_is_still_due(bench: Bench) -> None:
    tool = bench.binary("tool")
    bench.bundle({"phase-1": [CONTAINERS, tool], "phase-2": [bench.value("b")]}, restarts=["phase-1"])
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6  # there is no folder for the file
    bench.machine.files.make_folder(r"C:\k")
    again = bench.run("phase-1")
    assert again.exit_code == 3010
    assert [event["status"] for event in bench.events(again, "resource")] == ["ok", "changed"]
    assert bench.events(again, "phase")[-1]["restart"] is True


def test_a_failed_run_is_resumed_and_what_was_changed_stays_changed(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a"), bench.folder(r"C:\k"), bench.binary("tool"), bench.value("z")]})
    web, bench.web = bench.web, {}
    assert bench.run("phase-1").exit_code == 6
    assert bench.kept("state.json")["resources"] == {}  # bytes are fetched before anything is changed
    bench.web = web
    bench.machine.files.write(r"C:\k", b"in the way")
    assert bench.run("phase-1").exit_code == 6
    bench.machine.files.remove(r"C:\k")
    events = bench.done("phase-1")
    resources = [event["status"] for event in events if event["event"] == "resource"]
    assert resources == ["ok", "changed", "changed", "changed"]
    assert events[-1]["changed"] == 3
    report = bench.kept("report.json")
    assert [one["status"] for one in report["resources"]] == ["changed"] * 4
    assert report["phases"][0]["changed"] == 4


def test_a_finished_phase_is_not_believed(bench: Bench) -> None:
    bench.bundle(
        {"phase-1": [bench.folder(r"C:\k"), bench.binary("tool")], "phase-2": [bench.value("b")]}, restarts=["phase-1"]
    )
    assert bench.run("phase-1").exit_code == 0
    bench.machine.files.remove(r"C:\k")
    events = [event for event in bench.done("phase-2") if event["event"] == "resource"]
    assert [(event["phase"], event["status"]) for event in events] == [
        ("phase-1", "changed"), ("phase-1", "changed"), ("phase-2", "changed"),
    ]  # fmt: skip
    assert len(bench.fetched) == 2


def test_an_earlier_resource_that_failed_is_told_of_when_it_is_so_again(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.binary("tool")], "phase-2": [bench.value("b")]})
    bench.machine.files.make_folder(r"C:\k")
    bench.machine.files.write(r"C:\k\tool.exe", b"MZ")
    bench.done("phase-1")
    bench.machine.files.remove(r"C:\k\tool.exe")
    bench.web = {}
    assert bench.run("phase-2").exit_code == 6  # its bytes never came: nothing was set
    assert bench.kept("state.json")["resources"][r"phase-1-step/file:C:\k\tool.exe"]["status"] == "failed"
    bench.machine.files.write(r"C:\k\tool.exe", b"MZ")
    events = [event for event in bench.done("phase-2") if event["event"] == "resource"]
    assert [(event["phase"], event["status"]) for event in events] == [("phase-1", "ok"), ("phase-2", "changed")]


def test_a_feature_that_did_not_survive_the_restart_is_found(bench: Bench) -> None:
    bench.bundle({"phase-1": [CONTAINERS], "phase-2": [bench.value("b")]}, restarts=["phase-1"])
    bench.run("phase-1")
    bench.machine.restart()
    bench.machine.features.uninstall("Containers")
    bench.machine.restart()
    reasons = []
    for _ in range(2):
        outcome = bench.run("phase-2")
        assert outcome.exit_code == 6
        assert not bench.machine.registry.has_key(r"HKLM:\SOFTWARE\Test")  # the phase itself never began
        reasons.append(bench.events(outcome)[-1]["reason"])
    assert reasons[0] == (
        "step phase-1-step, resource phase-1-step/feature:Containers: it was set and needs a restart,"
        " but the plan has none after phase-2"
    )
    assert reasons[1].startswith("Windows has a restart pending in the middle of phase-2")
    bench.machine.restart()
    bench.done("phase-2")


def test_a_later_resource_that_undoes_an_earlier_one_is_found(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a", 1)], "phase-2": [bench.value("A", 2)]})
    bench.done("phase-1")
    outcome = bench.run("phase-2")
    assert outcome.exit_code == 6
    failed = bench.events(outcome)[-1]
    assert failed["reason"].startswith("step phase-1-step, resource phase-1-step/registry:")
    assert "no longer as planned at the end: data is 2, not 1" in failed["reason"]
    assert not bench.machine.files.exists(rf"{HOME}\report.json")
    assert bench.kept("state.json")["phases"]["phase-2"]["status"] == "failed"


def test_the_guest_folder_is_for_system_and_administrators(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    bench.done("phase-1")
    access = effective(bench.machine.files, HOME)
    assert access.protected
    assert {(entry.sid, entry.rights) for entry in access.entries} == {
        ("S-1-5-18", "FullControl"), ("S-1-5-32-544", "FullControl"),
    }  # fmt: skip
    assert b'"event": "phase"' in bench.machine.files.read(rf"{HOME}\engine.log")


# ---- what a crash leaves


def test_what_was_set_when_the_engine_ended_counts_as_changed(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a"), bench.folder(r"C:\k")], "phase-2": [bench.folder(r"C:\Windows")]})
    run_and_end(bench, "phase-1", bench.machine.registry, "write", r"HKLM:\SOFTWARE\Test")
    assert bench.kept("state.json")["resources"][r"phase-1-step/registry:HKLM:\SOFTWARE\Test\a"]["status"] == "setting"
    events = bench.done("phase-1")
    assert [event["reason"] for event in events if event["event"] == "resource"] == [
        "an earlier run began to set it", r"there is no folder C:\k",
    ]  # fmt: skip
    assert events[-1]["changed"] == 2
    bench.machine.files.remove(r"C:\k")
    run_and_end(bench, "phase-2", bench.machine.files, "make_folder", r"C:\k")
    bench.done("phase-2")
    report = bench.kept("report.json")
    assert [one["status"] for one in report["resources"]] == ["changed", "changed", "ok"]
    assert [phase["changed"] for phase in report["phases"]] == [2, 0]


def test_what_was_set_before_its_set_failed_counts_as_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [bench.value("a"), bench.binary("tool")]
    bench.bundle({"phase-1": wanted, "phase-2": [bench.value("b")]})
    bench.machine.files.make_folder(r"C:\k")

    def write_and_fail(*arguments: Any) -> None:  # noqa: ANN401 - as it is called
        write(*arguments)
        raise RefusedByWindows("it did not end within 60 s")

    write = bench.machine.registry.write
    with monkeypatch.context() as patched:
        patched.setattr(bench.machine.registry, "write", write_and_fail)
        outcome = bench.run("phase-1")
    assert (outcome.exit_code, bench.events(outcome, "resource")[0]["status"]) == (6, "failed")
    events = bench.done("phase-1")
    assert [(event["status"], event["reason"]) for event in events if event["event"] == "resource"] == [
        ("changed", "an earlier run began to set it"), ("changed", r"there is no file C:\k\tool.exe"),
    ]  # fmt: skip
    assert events[-1]["changed"] == 2
    bench.done("phase-2")
    report = bench.kept("report.json")
    assert [one["status"] for one in report["resources"]] == ["changed"] * 3
    assert [phase["changed"] for phase in report["phases"]] == [2, 1]


def test_what_was_begun_stays_so_though_it_cannot_be_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    run_and_end(bench, "phase-1", bench.machine.registry, "write", r"HKLM:\SOFTWARE\Test")

    def refuse(key: str, name: str) -> Value | None:
        if key == r"HKLM:\SOFTWARE\Test":
            raise RefusedByWindows("access is denied")
        return value(key, name)

    value = bench.machine.registry.value
    with monkeypatch.context() as patched:
        patched.setattr(bench.machine.registry, "value", refuse)
        assert bench.run("phase-1").exit_code == 6
    assert bench.done("phase-1")[-1]["changed"] == 1


def test_a_finished_phase_that_runs_again_before_the_restart_ends_in_the_same_way(bench: Bench) -> None:
    """Packer starts it again after a broken connection. Windows itself has no restart pending."""
    text = bench.text("a.ps1", b"exit 3010")
    usual = {"arguments": [], "good_exit_codes": [3010], "timeout_s": 60}
    script = {"name": "01-a.ps1", "source": text, "sha256": hashlib.sha256(b"exit 3010").hexdigest(), **usual}
    bench.bundle({"phase-1": [("script", script)], "phase-2": []}, restarts=["phase-1"])
    for changed in (1, 0):
        outcome = bench.run("phase-1")
        assert (outcome.exit_code, bench.events(outcome)[-1]["changed"]) == (3010, changed)
    bench.machine.restart()
    bench.done("phase-1")


def test_a_feature_that_was_set_when_the_engine_ended_is_the_phases_own(bench: Bench) -> None:
    bench.bundle({"phase-1": [CONTAINERS], "phase-2": [bench.value("b")]}, restarts=["phase-1"])
    run_and_end(bench, "phase-1", bench.machine.features, "install", "Containers")
    assert bench.machine.restart_pending()
    assert bench.run("phase-1").exit_code == 3010
    bench.machine.restart()
    bench.done("phase-2")
    assert bench.kept("report.json")["resources"][0]["status"] == "changed"


HALF = b'{"state_version":1,"plan_sha256":"'
SPOILT = [b"", bytes(80), HALF, b"[]", b"null", b'{"state_version":2}']


def test_a_state_that_a_crash_spoilt_is_discarded(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")], "phase-2": [bench.value("b")]})
    bench.done("phase-1")
    bench.machine.files.remove(rf"{HOME}\state.json")
    for name, spoilt in [("state.json.new", HALF), *(("state.json", data) for data in SPOILT)]:
        bench.machine.files.write(rf"{HOME}\{name}", spoilt)
        line = rf"discarded {HOME}\{name}: it is not a complete state of version 1"
        outcome = bench.run("phase-2")
        assert (outcome.exit_code, "phase-1 is not finished" in outcome.output) == (6, True)
        assert bench.statuses(bench.events(outcome)) == [("phase", "started"), ("phase", "failed")]
        assert line in outcome.output.splitlines()
        assert line in bench.machine.files.read(rf"{HOME}\engine.log").decode().splitlines()
    bench.done("phase-1")
    assert "discarded" not in bench.run("phase-2").output


def test_a_whole_new_state_is_taken_only_where_the_other_is_missing_or_spoilt(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")], "phase-2": [bench.value("b")], "phase-3": [bench.value("c")]})
    bench.done("phase-1")
    files = bench.machine.files
    files.move(rf"{HOME}\state.json", rf"{HOME}\state.json.new")
    bench.done("phase-2")
    files.move(rf"{HOME}\state.json", rf"{HOME}\state.json.new")
    files.write(rf"{HOME}\state.json", b"")
    bench.done("phase-3")
    files.write(rf"{HOME}\state.json.new", HALF)
    assert "discarded" not in bench.run("phase-3").output
    assert [one["status"] for one in bench.kept("report.json")["resources"]] == ["changed"] * 3


# ---- event lines


def test_event_lines_are_short_ascii(bench: Bench) -> None:
    data = "\N{SNOWMAN}" * 700
    wanted = {"key": r"HKLM:\SOFTWARE\Test", "name": "Übel", "type": "String", "data": data}
    bench.bundle({"phase-1": [("registry", wanted)]})
    bench.machine.registry.make_key(wanted["key"])
    reasons = []
    for before in ("\N{SNOWMAN}" * 800, "x" * 800):
        bench.machine.registry.write(wanted["key"], wanted["name"], Value("String", before))
        outcome = bench.run("phase-1")
        assert outcome.output.isascii()
        assert all(len(line) <= 1000 + len("imagegen: ") for line in outcome.output.splitlines())
        [event] = bench.events(outcome, "resource")
        assert event["id"].endswith("Übel")
        reasons.append(event["reason"])
    assert 90 < len(reasons[0]) < 600
    assert len(reasons[1]) == 600
    json.loads(bench.machine.files.read(rf"{HOME}\report.json").decode("ascii"))


def test_certificates_come_before_the_downloads(bench: Bench) -> None:
    """The host of an artifact may have a certificate that Windows trusts only with them."""
    root = b"the bytes of a root certificate"
    named = {"store": "Root", "subject": "CN=Example Root", "sha256": hashlib.sha256(root).hexdigest()}
    named["thumbprint"] = hashlib.sha1(root, usedforsecurity=False).hexdigest().upper()
    certificate = ("certificate", {**named, "source": bench.text("root.cer", root)})
    bench.machine.files.make_folder(r"C:\k")
    bench.bundle({"phase-1": [bench.binary("tool"), certificate]})
    events = [event for event in bench.done("phase-1") if event["event"] in ("artifact", "resource")]
    assert [event.get("name") or event["id"].partition("/")[2][:11] for event in events] == [
        "certificate",
        "tool",
        "tool",
        r"file:C:\k\t",
    ]
