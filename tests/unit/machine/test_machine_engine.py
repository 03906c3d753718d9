"""Each rule of docs/guest.md that is the engine's own: bytes, order, restarts, resuming, looking only."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.machine import run_entry
from imagegen.rehearsal.machine.access import effective
from imagegen.rehearsal.machine.features import REBOOT_PENDING
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.windows import CURRENT_VERSION, REBOOT_REQUIRED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.machine.conftest import Bench, Fields

ZIP = r"C:\Windows\Temp\imagegen-bundle.zip"
HOME = r"C:\ProgramData\imagegen"
CONTAINERS = ("feature", {"name": "Containers"})


def value(name: str, data: int = 1) -> tuple[str, Fields]:
    return "registry", {"key": r"HKLM:\SOFTWARE\Test", "name": name, "type": "DWord", "data": data}


def folder(path: str) -> tuple[str, Fields]:
    return "directory", {"path": path}


def binary(bench: Bench, name: str, data: bytes = b"MZ") -> tuple[str, Fields]:
    bench.artifact(name, data)
    digest = hashlib.sha256(data).hexdigest()
    return "file", {"path": rf"C:\k\{name}.exe", "sha256": digest, "source": None, "artifact": name}


def statuses(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["event"], event.get("status", "")) for event in events]


# ---- arguments


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: [*words, "-Force"], "unknown argument: -Force"),
        (lambda words: [*words, "stray"], "unknown argument: stray"),
        (lambda words: [*words, "-phase", "base"], "-phase is there twice"),
        (lambda words: [*words, "-Check", "-check"], "-check is there twice"),
        (lambda words: [*words, "-Check", "-WhatIf"], "exclude each other"),
        (lambda words: words[2:], "-Phase is missing"),
        (lambda words: ["-Phase", *words[2:]], "-Phase has no value"),
        (lambda words: ["-Ph", *words[1:]], "unknown argument: -Ph"),
        (lambda words: ["-Phase", "all", *words[2:]], "-Phase all goes with -Check or -WhatIf only"),
        (lambda words: ["-Phase", "other", *words[2:]], "the plan has no phase 'other': it has base"),
        (lambda words: [*words[:-1], words[-1].upper()], "-PlanSha256 must be 64 lower-case hex digits"),
        (lambda words: [*words[:3], r"C:\none.zip", *words[4:]], r"-Bundle: there is no file C:\none.zip"),
    ],
)
def test_wrong_arguments(bench: Bench, change: Callable[[list[str]], list[str]], message: str) -> None:
    bench.bundle({"base": [value("a")]})
    before = bench.snapshot()
    outcome = run_entry(bench.machine, change(bench.arguments("base")), bench.fetch)
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert bench.snapshot() == before


def test_argument_names_have_no_case_and_paths_take_both_slashes(bench: Bench) -> None:
    bench.bundle({"base": [value("a")]})
    words = [word.lower() if word.startswith("-") else word.replace("\\", "/") for word in bench.arguments("base")]
    assert run_entry(bench.machine, words, bench.fetch).exit_code == 0


# ---- bytes


def flip(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


def flip_plan(bench: Bench) -> None:
    pins = bench.pins
    bench.plan["name"] = "tesu"
    bench.upload()
    bench.pins["-PlanSha256"] = pins["-PlanSha256"]


def flip_listed(bench: Bench) -> None:
    bench.contents["engine.psm1"] = b"other"
    bench.upload()


def leave_out(bench: Bench) -> None:
    del bench.contents["kinds/registry.ps1"]
    bench.upload()


def slip_in(name: str) -> Callable[[Bench], None]:
    def slip(bench: Bench) -> None:
        bench.contents[name] = b"other"
        bench.upload()

    return slip


def no_plan(bench: Bench) -> None:
    bench.machine.files.write(ZIP, b"PK\x05\x06" + bytes(18))
    bench.pins["-BundleSha256"] = hashlib.sha256(bench.machine.files.read(ZIP)).hexdigest()


def no_zip(bench: Bench) -> None:
    bench.machine.files.write(ZIP, b"no zip")
    bench.pins["-BundleSha256"] = hashlib.sha256(b"no zip").hexdigest()


def other_windows(bench: Bench) -> None:
    bench.plan["windows"]["build"] = 26100
    bench.upload()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda bench: bench.machine.files.write(ZIP, flip(bench.machine.files.read(ZIP))), "sha256 of the bundle is"),
        (flip_plan, "the sha256 of plan.json is"),
        (flip_listed, "the sha256 of engine.psm1 is"),
        (leave_out, "the bundle lacks kinds/registry.ps1"),
        (slip_in("kinds/extra.ps1"), "the bundle holds kinds/extra.ps1, and the plan does not"),
        (slip_in("../evil.ps1"), "a file of the name '../evil.ps1'"),
        (slip_in(r"kinds\evil.ps1"), r"a file of the name 'kinds"),
        (slip_in("kinds/evil.ps1."), "a file of the name 'kinds/evil.ps1.'"),
        (slip_in("Engine.psm1"), "the bundle holds 'Engine.psm1' twice"),
        (no_plan, "the bundle holds no plan.json"),
        (no_zip, "the bundle is no zip"),
        (other_windows, "the plan is for Windows Server 2022, build 26100; this machine has build 20348"),
    ],
)
@pytest.mark.parametrize("extra", [(), ("-Check",), ("-WhatIf",)])
def test_wrong_bytes(bench: Bench, spoil: Callable[[Bench], None], message: str, extra: tuple[str, ...]) -> None:
    bench.bundle({"base": [value("a")]})
    spoil(bench)
    outcome = bench.run("base", *extra)
    assert (outcome.exit_code, message in outcome.output) == (4, True), outcome.output
    assert not bench.machine.registry.has_key(r"HKLM:\SOFTWARE\Test")


def test_a_machine_of_another_build_is_refused(bench: Bench) -> None:
    bench.bundle({"base": [value("a")]})
    bench.machine.registry.remove_value(CURRENT_VERSION, "CurrentBuildNumber")
    assert bench.run("base").exit_code == 4


def set_version(plan: dict[str, Any]) -> None:
    plan["plan_version"] = 2


def set_kind(plan: dict[str, Any]) -> None:
    plan["phases"][0]["steps"][0]["resources"][0]["kind"] = "magic"


def drop_field(plan: dict[str, Any]) -> None:
    del plan["phases"][0]["steps"][0]["resources"][0]["fields"]["data"]


def repeat_id(plan: dict[str, Any]) -> None:
    plan["phases"][0]["steps"][0]["resources"] *= 2


def repeat_step(plan: dict[str, Any]) -> None:
    step = {**plan["phases"][0]["steps"][0], "resources": []}
    plan["phases"].append({**plan["phases"][0], "name": "more", "steps": [step]})


def rename(plan: dict[str, Any]) -> None:
    plan["phases"][0]["steps"][0]["name"] = "other"


@pytest.mark.parametrize("spoil", [set_version, set_kind, drop_field, repeat_id, repeat_step, rename])
def test_a_plan_that_the_engine_cannot_read_is_a_fault(bench: Bench, spoil: Callable[[dict[str, Any]], None]) -> None:
    bench.bundle({"base": [value("a")]})
    bench.contents["kinds/magic.ps1"] = b""
    bench.plan["files"]["kinds/magic.ps1"] = hashlib.sha256(b"").hexdigest()
    bench.upload()
    assert bench.run("base").exit_code == 0
    spoil(bench.plan)
    bench.upload()
    assert bench.run("base").exit_code == 1


def test_a_kind_without_its_script_is_a_fault(bench: Bench) -> None:
    bench.bundle({"base": [value("a")]})
    del bench.contents["kinds/registry.ps1"], bench.plan["files"]["kinds/registry.ps1"]
    bench.upload()
    outcome = bench.run("base")
    assert (outcome.exit_code, "cannot load kinds/registry.ps1" in outcome.output) == (1, True)


# ---- artifacts


@pytest.mark.parametrize(
    ("data", "exit_code", "message"),
    [
        (b"M", 4, "artifact tool from https://artifacts.example/tool: size is 1, the plan says 2"),
        (b"MX", 4, "artifact tool from https://artifacts.example/tool: sha256 is"),
        (None, 6, "artifact tool from https://artifacts.example/tool: HTTP 404"),
    ],
)
def test_wrong_artifacts(bench: Bench, data: bytes | None, exit_code: int, message: str) -> None:
    bench.bundle({"base": [folder(r"C:\k"), binary(bench, "tool")]})
    [url] = bench.web
    bench.web = {} if data is None else {url: data}
    outcome = bench.run("base")
    assert outcome.exit_code == exit_code
    failed = bench.events(outcome, "phase")[-1]
    assert failed["reason"].startswith("step base-step, resource base-step/file:C:\\k\\tool.exe: ")
    assert message in failed["reason"]
    assert "secret" not in outcome.output
    assert bench.kept("state.json")["phases"]["base"]["status"] == "failed"


def test_a_broken_line_is_tried_again_and_wrong_bytes_once_more(bench: Bench) -> None:
    bench.bundle({"base": [folder(r"C:\k"), binary(bench, "tool")]})
    answers: list[bytes | OSError] = [ConnectionResetError("reset"), b"MX", TimeoutError("slow"), b"MZ"]

    def fetch(_url: str) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert run_entry(bench.machine, bench.arguments("base"), fetch).exit_code == 0
    assert not answers


def test_a_line_that_stays_broken_fails(bench: Bench) -> None:
    bench.bundle({"base": [folder(r"C:\k"), binary(bench, "tool")]})
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        raise ConnectionResetError("reset by peer")

    outcome = run_entry(bench.machine, bench.arguments("base"), fetch)
    assert (outcome.exit_code, "reset by peer" in outcome.output, len(asked)) == (6, True, 8)


def test_only_what_is_not_so_is_fetched_once_and_deleted_afterwards(bench: Bench) -> None:
    tool, other = binary(bench, "tool"), binary(bench, "other", b"MZ2")
    copy = ("file", {**tool[1], "path": r"C:\k\copy.exe"})
    bench.machine.files.make_folder(r"C:\k")
    bench.machine.files.write(r"C:\k\other.exe", b"MZ2")
    bench.bundle({"base": [tool, copy, other]})
    events = [event for event in bench.done("base") if event["event"] == "artifact"]
    assert [(event["name"], event["status"], event["size"]) for event in events] == [
        ("tool", "fetching", 2), ("tool", "ready", 2),
    ]  # fmt: skip
    assert bench.fetched == ["https://artifacts.example/tool?sig=secret"]
    assert not bench.machine.files.exists(rf"{HOME}\artifacts")


def test_an_artifact_is_fetched_late_when_an_earlier_resource_undoes_its_file(bench: Bench) -> None:
    tool, other = binary(bench, "tool"), binary(bench, "other", b"MZ2")
    bench.machine.files.make_folder(r"C:\k")
    bench.machine.files.write(r"C:\k\tool.exe", b"MZ")
    bench.bundle({"base": [("file", {**other[1], "path": r"C:\K\TOOL.exe"}), tool]})
    outcome = bench.run("base")
    assert [event["name"] for event in bench.events(outcome, "artifact")] == ["other", "other", "tool", "tool"]
    assert [event["status"] for event in bench.events(outcome, "resource")] == ["changed", "changed", "failed"]
    assert "no longer so at the end" in outcome.output


def test_an_address_without_tls_is_refused(bench: Bench) -> None:
    bench.bundle({"base": [folder(r"C:\k"), binary(bench, "tool")]})
    bench.plan["artifacts"]["tool"]["url"] = "http://user:secret@artifacts.example/tool"
    bench.upload()
    outcome = bench.run("base")
    assert (outcome.exit_code, "http://artifacts.example/tool is not https" in outcome.output) == (6, True)
    assert not bench.fetched


# ---- phases and restarts


def test_phases_restart_and_report(bench: Bench) -> None:
    bench.bundle({"base": [value("a"), CONTAINERS], "node": [folder(r"C:\k")]}, restarts=["base"])
    first = bench.run("base")
    assert first.exit_code == 3010
    assert statuses(bench.events(first)) == [
        ("phase", "started"), ("resource", "changed"), ("resource", "changed"), ("phase", "finished"),
    ]  # fmt: skip
    finished = bench.events(first)[-1]
    assert {**finished, "ms": 0} == {
        "event": "phase", "phase": "base", "status": "finished", "resources": 2, "changed": 2, "restart": True,
        "ms": 0, "reason": "",
    }  # fmt: skip
    bench.machine.restart()
    second = bench.done("node")
    assert statuses(second) == [
        ("phase", "started"), ("resource", "changed"), ("report", ""), ("phase", "finished"),
    ]  # fmt: skip
    report = bench.kept("report.json")
    assert report["plan_sha256"] == bench.pins["-PlanSha256"]
    assert report["machine"] == {
        "product": "Windows Server 2022 Datacenter", "edition": "ServerDatacenter", "installation": "Server Core",
        "build": 20348, "ubr": 5499, "updates": ["KB5082142"],
    }  # fmt: skip
    assert [(phase["name"], phase["status"], phase["changed"], phase["restart"]) for phase in report["phases"]] == [
        ("base", "finished", 2, True), ("node", "finished", 1, False),
    ]  # fmt: skip
    assert [(one["id"], one["phase"], one["step"], one["kind"], one["status"]) for one in report["resources"]] == [
        (r"base-step/registry:HKLM:\SOFTWARE\Test\a", "base", "base-step", "registry", "changed"),
        ("base-step/feature:Containers", "base", "base-step", "feature", "changed"),
        (r"node-step/directory:C:\k", "node", "node-step", "directory", "changed"),
    ]
    data = bench.machine.files.read(rf"{HOME}\report.json")
    assert second[2] == {"event": "report", "path": rf"{HOME}\report.json", "sha256": hashlib.sha256(data).hexdigest()}


def test_a_phase_out_of_order_is_refused(bench: Bench) -> None:
    bench.bundle({"base": [value("a")], "node": [value("b")]})
    outcome = bench.run("node")
    assert (outcome.exit_code, "phase base is not finished" in outcome.output) == (6, True)
    assert not bench.machine.registry.has_key(r"HKLM:\SOFTWARE\Test")


def test_a_phase_that_failed_is_not_finished(bench: Bench) -> None:
    bench.bundle({"base": [("directory", {"path": r"D:\x"})], "node": [value("b")]})
    assert bench.run("base").exit_code == 6
    outcome = bench.run("node")
    assert (outcome.exit_code, "phase base is not finished" in outcome.output) == (6, True)


def test_the_state_of_another_plan_is_discarded(bench: Bench) -> None:
    bench.bundle({"base": [value("a")], "node": [value("b")]})
    bench.done("base")
    bench.bundle({"base": [value("a")], "node": [value("c")]})
    assert bench.run("node").exit_code == 6


def test_a_restart_that_was_not_taken_is_refused(bench: Bench) -> None:
    bench.bundle({"base": [CONTAINERS], "node": [value("b")]}, restarts=["base"])
    assert bench.run("base").exit_code == 3010
    outcome = bench.run("node")
    assert (outcome.exit_code, "the one after phase base was not taken" in outcome.output) == (6, True)
    assert bench.run("base").exit_code == 3010
    bench.machine.restart()
    bench.done("node")


@pytest.mark.parametrize("key", [REBOOT_PENDING, REBOOT_REQUIRED])
def test_a_base_image_with_a_restart_pending_is_refused(bench: Bench, key: str) -> None:
    bench.machine.registry.make_key(key)
    bench.bundle({"base": [value("a")], "node": [value("b")]}, restarts=["base"])
    outcome = bench.run("base")
    assert (outcome.exit_code, "the base image is not ready" in outcome.output) == (6, True)
    assert not bench.machine.registry.has_key(r"HKLM:\SOFTWARE\Test")
    bench.machine.restart()
    assert bench.run("base").exit_code == 0


def test_a_restart_that_is_due_where_none_follows_fails(bench: Bench) -> None:
    bench.bundle({"base": [CONTAINERS], "node": [value("b")]})
    outcome = bench.run("base")
    assert (outcome.exit_code, "and the plan has none there" in outcome.output) == (6, True)


def test_a_restart_called_for_by_a_failed_run_is_still_due(bench: Bench) -> None:
    tool = binary(bench, "tool")
    bench.bundle({"base": [CONTAINERS, tool], "node": [value("b")]}, restarts=["base"])
    outcome = bench.run("base")
    assert outcome.exit_code == 6  # there is no folder for the file
    bench.machine.files.make_folder(r"C:\k")
    again = bench.run("base")
    assert again.exit_code == 3010
    assert [event["status"] for event in bench.events(again, "resource")] == ["ok", "changed"]
    assert bench.events(again, "phase")[-1]["restart"] is True


def test_a_failed_run_is_resumed_and_what_was_changed_stays_changed(bench: Bench) -> None:
    bench.bundle({"base": [value("a"), folder(r"C:\k"), binary(bench, "tool"), value("z")]})
    web, bench.web = bench.web, {}
    assert bench.run("base").exit_code == 6
    assert bench.kept("state.json")["resources"] == {}  # bytes are fetched before anything is changed
    bench.web = web
    bench.machine.files.write(r"C:\k", b"in the way")
    assert bench.run("base").exit_code == 6
    bench.machine.files.remove(r"C:\k")
    events = bench.done("base")
    resources = [event["status"] for event in events if event["event"] == "resource"]
    assert resources == ["ok", "changed", "changed", "changed"]
    assert events[-1]["changed"] == 3
    report = bench.kept("report.json")
    assert [one["status"] for one in report["resources"]] == ["changed"] * 4
    assert report["phases"][0]["changed"] == 4


def test_a_finished_phase_is_not_believed(bench: Bench) -> None:
    bench.bundle({"base": [folder(r"C:\k"), binary(bench, "tool")], "node": [value("b")]}, restarts=["base"])
    assert bench.run("base").exit_code == 0
    bench.machine.files.remove(r"C:\k")
    events = [event for event in bench.done("node") if event["event"] == "resource"]
    assert [(event["phase"], event["status"]) for event in events] == [
        ("base", "changed"), ("base", "changed"), ("node", "changed"),
    ]  # fmt: skip
    assert len(bench.fetched) == 2


def test_a_feature_that_did_not_survive_the_restart_is_found(bench: Bench) -> None:
    bench.bundle({"base": [CONTAINERS], "node": [value("b")]}, restarts=["base"])
    bench.run("base")
    bench.machine.restart()
    bench.machine.features.uninstall("Containers")
    bench.machine.restart()
    outcome = bench.run("node")
    assert outcome.exit_code == 6
    assert "a restart" in outcome.output


def test_a_later_resource_that_undoes_an_earlier_one_is_found(bench: Bench) -> None:
    bench.bundle({"base": [value("a", 1)], "node": [value("A", 2)]})
    bench.done("base")
    outcome = bench.run("node")
    assert outcome.exit_code == 6
    failed = bench.events(outcome)[-1]
    assert failed["reason"].startswith("step base-step, resource base-step/registry:")
    assert "no longer so at the end: data is 2, not 1" in failed["reason"]
    assert not bench.machine.files.exists(rf"{HOME}\report.json")
    assert bench.kept("state.json")["phases"]["node"]["status"] == "failed"


def test_the_guest_folder_is_for_system_and_administrators(bench: Bench) -> None:
    bench.bundle({"base": [value("a")]})
    bench.done("base")
    access = effective(bench.machine.files, HOME)
    assert access.protected
    assert {(entry.sid, entry.rights) for entry in access.entries} == {
        ("S-1-5-18", "FullControl"), ("S-1-5-32-544", "FullControl"),
    }  # fmt: skip
    assert b'"event": "phase"' in bench.machine.files.read(rf"{HOME}\engine.log")


def test_a_state_that_cannot_be_read_is_a_fault(bench: Bench) -> None:
    bench.bundle({"base": [value("a")]})
    bench.done("base")
    bench.machine.files.write(rf"{HOME}\state.json", b"{")
    assert bench.run("base").exit_code == 1


# ---- -Check and -WhatIf


@pytest.mark.parametrize(("word", "exit_code", "status"), [("-Check", 5, "drifted"), ("-WhatIf", 0, "would change")])
def test_looking_changes_nothing(bench: Bench, word: str, exit_code: int, status: str) -> None:
    bench.machine.registry.make_key(REBOOT_PENDING)  # nothing is changed, so nothing is refused for it
    bench.bundle({"base": [folder(r"C:\k"), CONTAINERS], "node": [binary(bench, "tool"), folder(r"C:\Users")]})
    before = bench.snapshot()
    outcome = bench.run("all", word)
    assert outcome.exit_code == exit_code
    assert bench.snapshot() == before
    assert not bench.machine.files.exists(rf"{HOME}\state.json")
    assert not bench.fetched
    assert statuses(bench.events(outcome)) == [
        ("phase", "started"), ("resource", status), ("resource", status), ("phase", "finished"),
        ("phase", "started"), ("resource", status), ("resource", "ok"), ("phase", "finished"),
    ]  # fmt: skip
    assert all(bool(event["reason"]) is (event["status"] == status) for event in bench.events(outcome, "resource"))
    assert [event["phase"] for event in bench.events(bench.run("node", word), "phase")] == ["node", "node"]


def test_looking_at_what_cannot_be_read_fails(bench: Bench) -> None:
    bench.bundle({"base": [("feature", {"name": "None"})]})
    outcome = bench.run("all", "-WhatIf")
    assert outcome.exit_code == 6
    assert statuses(bench.events(outcome)) == [("phase", "started"), ("resource", "failed"), ("phase", "failed")]


# ---- event lines


def test_event_lines_are_short_ascii(bench: Bench) -> None:
    data = "\N{SNOWMAN}" * 700
    wanted = {"key": r"HKLM:\SOFTWARE\Test", "name": "Übel", "type": "String", "data": data}
    bench.bundle({"base": [("registry", wanted)]})
    bench.machine.registry.make_key(wanted["key"])
    for before in ("\N{SNOWMAN}" * 800, "x" * 800):
        bench.machine.registry.write(wanted["key"], wanted["name"], Value("String", before))
        outcome = bench.run("base")
        assert outcome.output.isascii()
        assert all(len(line) <= 1000 + len("imagegen: ") for line in outcome.output.splitlines())
        [event] = bench.events(outcome, "resource")
        assert event["id"].endswith("Übel")
        assert 90 < len(event["reason"]) <= 600
    assert len(event["reason"]) == 600
    json.loads(bench.machine.files.read(rf"{HOME}\report.json").decode("ascii"))
