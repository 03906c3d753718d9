"""-Check on the model machine: it changes nothing, and leaves nothing behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.machine.access import effective
from imagegen.rehearsal.machine.bundle import CHECK_HOME
from imagegen.rehearsal.machine.features import REBOOT_PENDING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.access import AccessList
    from tests.rehearsal.machine.conftest import Bench

HOME = r"C:\ProgramData\imagegen"
FIRST_BOOT_LOG = r"C:\Windows\Setup\Scripts\first-boot.log"
CONTAINERS = ("feature", {"name": "Containers"})


def test_looking_changes_nothing(bench: Bench) -> None:
    bench.machine.registry.make_key(REBOOT_PENDING)  # nothing is changed, so nothing is refused for it
    bench.bundle(
        {"phase-1": [bench.folder(r"C:\k"), CONTAINERS], "phase-2": [bench.binary("tool"), bench.folder(r"C:\Users")]}
    )
    before = bench.snapshot()
    outcome = bench.run("all", "-Check")
    assert outcome.exit_code == 5
    assert bench.snapshot() == before
    assert not bench.machine.files.exists(rf"{HOME}\state.json")
    assert not bench.fetched
    assert bench.statuses(bench.events(outcome)) == [
        ("phase", "started"), ("resource", "drifted"), ("resource", "drifted"), ("phase", "finished"),
        ("phase", "started"), ("resource", "drifted"), ("resource", "ok"), ("phase", "finished"),
    ]  # fmt: skip
    assert all(bool(event["reason"]) is (event["status"] == "drifted") for event in bench.events(outcome, "resource"))
    assert [event["phase"] for event in bench.events(bench.run("phase-2", "-Check"), "phase")] == ["phase-2", "phase-2"]


def test_looking_at_what_cannot_be_read_fails_after_everything_else_was_looked_at(bench: Bench) -> None:
    bench.bundle({"phase-1": [("feature", {"name": "None"}), bench.folder(r"C:\Users")], "phase-2": [CONTAINERS]})
    outcome = bench.run("all", "-Check")
    assert outcome.exit_code == 6
    assert bench.statuses(bench.events(outcome)) == [
        ("phase", "started"), ("resource", "failed"), ("resource", "ok"), ("phase", "failed"),
        ("phase", "started"), ("resource", "drifted"), ("phase", "finished"),
    ]  # fmt: skip
    [failed] = [event for event in bench.events(outcome, "phase") if event["status"] == "failed"]
    assert failed["reason"].startswith("step phase-1-step, resource phase-1-step/feature:None: ")


MARK = "imagegen-check: "


def check(bench: Bench) -> tuple[int, dict[str, Any]]:
    """The exit code of -Check, and its result."""
    outcome = bench.run("all", "-Check")
    [line] = [line for line in outcome.output.splitlines() if line.startswith(MARK)]
    return outcome.exit_code, json.loads(line.removeprefix(MARK))


def until_first_boot(bench: Bench, *resources: str) -> None:
    """A plan in which nodes may change these resources."""
    for step in (step for phase in bench.plan["phases"] for step in phase["steps"]):
        for entry in step["resources"]:
            entry["until"] = "first-boot" if entry["id"].rpartition(":")[2] in resources else None
    bench.upload()


def test_a_check_ends_with_one_line_that_says_everything(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.folder(r"C:\Users"), ("feature", {"name": "None"})]})
    exit_code, found = check(bench)
    assert exit_code == 6
    machine = found.pop("machine")
    assert (machine["build"], machine["installation"]) == (20348, "Server Core")
    assert found == {
        "check_version": 1,
        "plan_sha256": bench.pins["-PlanSha256"],
        "name": "test",
        "target": "aws",
        "phase": "all",
        "node": bench.machine.host_name,
        "booted": False,
        "count": {"ok": 1, "drifted": 1, "skipped": 0, "failed": 1},
        "resources": [
            {"id": r"phase-1-step/directory:C:\k", "status": "drifted", "reasons": [r"there is no folder C:\k"]},
            {"id": r"phase-1-step/directory:C:\Users", "status": "ok", "reasons": []},
            {
                "id": "phase-1-step/feature:None",
                "status": "failed",
                "reasons": ["this Windows has no feature None"],
            },
        ],
    }


@pytest.mark.parametrize(
    ("log", "state", "passes_over"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_only_a_node_that_booted_may_have_changed_what_holds_until_then(
    bench: Bench, log: bool, state: bool, passes_over: bool
) -> None:
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.folder(r"C:\l")]})
    until_first_boot(bench, r"\k")
    for path, is_there in ((FIRST_BOOT_LOG, log), (rf"{HOME}\state.json", state)):
        if is_there:
            bench.machine.files.make_folder(path.rpartition("\\")[0])
            bench.machine.files.write(path, b"")
    exit_code, found = check(bench)
    assert exit_code == 5
    assert found["booted"] is passes_over
    assert [one["status"] for one in found["resources"]] == ["skipped" if passes_over else "drifted", "drifted"]
    bench.machine.files.make_folder(r"C:\l")
    assert check(bench)[0] == (0 if passes_over else 5)


def everything(bench: Bench) -> dict[str, Any]:
    files = bench.machine.files
    folders = {folder: files.names(folder) for folder in ("C:", r"C:\ProgramData", r"C:\Windows")}
    return {**folders, **{path: files.read(path) for path in files.below("C:")}}


def test_looking_leaves_nothing_behind(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a"), bench.folder(r"C:\k")]})
    before = everything(bench)
    assert bench.run("all", "-Check").exit_code == 5
    assert everything(bench) == before
    bench.done("phase-1")
    bench.machine.files.remove(r"C:\k")
    before = everything(bench)
    assert bench.run("phase-1", "-Check").exit_code == 5
    bench.pins["-PlanSha256"] = "0" * 64
    assert bench.run("all", "-Check").exit_code == 4
    assert everything(bench) == before


def test_looking_leaves_nothing_behind_when_it_is_interrupted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    before = everything(bench)

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.machine.registry, "value", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.run("all", "-Check")
    assert everything(bench) == before


def test_looking_removes_what_a_look_left_that_was_killed(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    files = bench.machine.files
    files.make_folder(CHECK_HOME)
    files.write(rf"{CHECK_HOME}\plan.json", b"{}")
    bench.done("phase-1")
    assert files.exists(CHECK_HOME)  # a phase is no check
    assert bench.run("all", "-Check").exit_code == 0
    assert not files.exists(CHECK_HOME)


def test_what_looking_unpacks_is_for_system_and_administrators_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    seen: dict[str, AccessList] = {}
    write = bench.machine.files.write

    def watch(path: str, data: bytes) -> None:
        seen[path] = effective(bench.machine.files, path.rpartition("\\")[0])
        write(path, data)

    monkeypatch.setattr(bench.machine.files, "write", watch)
    bench.run("all", "-Check")
    assert len(seen) == 1 + len(bench.contents)
    assert {entry.sid for access in seen.values() for entry in access.entries} == {"S-1-5-18", "S-1-5-32-544"}
