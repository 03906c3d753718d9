"""-Check and -WhatIf on the model machine: they change nothing, and leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.machine.access import ADMINISTRATORS, AccessEntry, effective
from imagegen.rehearsal.machine.access import write as write_access
from imagegen.rehearsal.machine.features import REBOOT_PENDING

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.access import AccessList
    from tests.unit.machine.conftest import Bench

HOME = r"C:\ProgramData\imagegen"
CONTAINERS = ("feature", {"name": "Containers"})


@pytest.mark.parametrize(("word", "exit_code", "status"), [("-Check", 5, "drifted"), ("-WhatIf", 0, "would change")])
def test_looking_changes_nothing(bench: Bench, word: str, exit_code: int, status: str) -> None:
    bench.machine.registry.make_key(REBOOT_PENDING)  # nothing is changed, so nothing is refused for it
    bench.bundle(
        {"phase-1": [bench.folder(r"C:\k"), CONTAINERS], "phase-2": [bench.binary("tool"), bench.folder(r"C:\Users")]}
    )
    before = bench.snapshot()
    outcome = bench.run("all", word)
    assert outcome.exit_code == exit_code
    assert bench.snapshot() == before
    assert not bench.machine.files.exists(rf"{HOME}\state.json")
    assert not bench.fetched
    assert bench.statuses(bench.events(outcome)) == [
        ("phase", "started"), ("resource", status), ("resource", status), ("phase", "finished"),
        ("phase", "started"), ("resource", status), ("resource", "ok"), ("phase", "finished"),
    ]  # fmt: skip
    assert all(bool(event["reason"]) is (event["status"] == status) for event in bench.events(outcome, "resource"))
    assert [event["phase"] for event in bench.events(bench.run("phase-2", word), "phase")] == ["phase-2", "phase-2"]


def test_looking_at_what_cannot_be_read_fails(bench: Bench) -> None:
    bench.bundle({"phase-1": [("feature", {"name": "None"})]})
    outcome = bench.run("all", "-WhatIf")
    assert outcome.exit_code == 6
    assert bench.statuses(bench.events(outcome)) == [("phase", "started"), ("resource", "failed"), ("phase", "failed")]


def everything(bench: Bench) -> dict[str, Any]:
    files = bench.machine.files
    folders = {folder: files.names(folder) for folder in ("C:", r"C:\ProgramData", r"C:\Windows\Temp")}
    return {**folders, **{path: files.read(path) for path in files.below("C:")}}


def test_looking_leaves_nothing_behind(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a"), bench.folder(r"C:\k")]})
    before = everything(bench)
    assert bench.run("all", "-Check").exit_code == 5
    assert everything(bench) == before
    bench.done("phase-1")
    bench.machine.files.remove(r"C:\k")
    before = everything(bench)
    assert bench.run("phase-1", "-WhatIf").exit_code == 0
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
    left, held, planted, other = (
        rf"C:\Windows\Temp\imagegen-look-{name}" for name in ("1" * 32, "2" * 32, "3" * 32, "mine")
    )
    for folder in (left, held, planted, other):
        files.make_folder(folder)
        files.write(rf"{folder}\plan.json", b"{}")
    for folder in (left, held, other):
        write_access(files, folder, [AccessEntry(ADMINISTRATORS, "FullControl", inherit=True)], protected=True)
    files.set_read_only(rf"{held}\plan.json", on=True)
    bench.done("phase-1")
    assert files.exists(left)  # a phase is no look
    outcome = bench.run("all", "-Check")
    assert outcome.exit_code == 0
    assert [files.exists(folder) for folder in (left, held, planted, other)] == [False, True, True, True]
    assert f"the folder of an earlier -Check or -WhatIf could not be removed: {held}: " in outcome.output


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
    bench.run("all", "-Check")
    assert len(seen) == 2 * (1 + len(bench.contents))  # a folder of its own each time
    assert {entry.sid for access in seen.values() for entry in access.entries} == {"S-1-5-18", "S-1-5-32-544"}
