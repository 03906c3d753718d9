"""What the engine checks before it changes anything: arguments, every byte of the bundle, the plan, the artifacts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.machine import run_entry
from imagegen.rehearsal.machine.updates import CURRENT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rehearsal.machine.conftest import Bench

ZIP = r"C:\Windows\Temp\imagegen-bundle.zip"
HOME = r"C:\ProgramData\imagegen"


# ---- arguments


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: [*words, "-Force"], "unknown argument: -Force"),
        (lambda words: [*words, "stray"], "unknown argument: stray"),
        (lambda words: [*words, "-phase", "phase-1"], "-phase is given twice"),
        (lambda words: [*words, "-Check", "-check"], "-check is given twice"),
        (lambda words: [*words, "-WhatIf"], "unknown argument: -WhatIf"),
        (lambda words: words[2:], "-Phase is missing"),
        (lambda words: ["-Phase", *words[2:]], "-Phase has no value"),
        (lambda words: ["-Ph", *words[1:]], "unknown argument: -Ph"),
        (lambda words: ["-B", "x", *words], "unknown argument: -B"),
        (lambda words: [*words, "-Phase"], "-Phase is given twice"),
        (lambda words: [*words[2:], "-Phase"], "-Phase has no value"),
        (lambda words: [*words, "-Check:maybe"], "unknown argument: maybe"),
        (lambda words: [*words, "-Check:"], "the last argument ends with a colon"),
        (lambda words: [*words, "\N{EN DASH}Check:"], "the last argument ends with a colon"),
        (lambda words: [*words, "-Check", "-Other:"], "the last argument ends with a colon"),
        (lambda words: words[:0], "-Phase is missing"),
        (lambda words: ["-Phase", "all", *words[2:]], "-Phase all can be used only with -Check"),
        (lambda words: ["-Phase", "other", *words[2:]], "the plan has no phase 'other': it has phase-1"),
        (lambda words: [*words[:-1], words[-1].upper()], "-PlanSha256 must be 64 lower-case hex digits"),
        (lambda words: [*words[:3], r"C:\none.zip", *words[4:]], r"-Bundle: there is no file C:\none.zip"),
    ],
)
def test_wrong_arguments(bench: Bench, change: Callable[[list[str]], list[str]], message: str) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    before = bench.snapshot()
    outcome = run_entry(bench.machine, change(bench.arguments("phase-1")), bench.fetch)
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert bench.snapshot() == before


def test_argument_names_have_no_case_and_paths_take_both_slashes(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    words = [word.lower() if word.startswith("-") else word.replace("\\", "/") for word in bench.arguments("phase-1")]
    assert run_entry(bench.machine, words, bench.fetch).exit_code == 0


def test_a_value_may_follow_its_name_after_a_colon(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    _, _, *words = bench.arguments("phase-1", "-Check")
    assert run_entry(bench.machine, ["-Phase:phase-1", *words], bench.fetch).exit_code == 5
    assert run_entry(bench.machine, ["-Check:", *bench.arguments("phase-1")], bench.fetch).exit_code == 5


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
        (leave_out, "the bundle does not have kinds/registry.ps1"),
        (slip_in("kinds/extra.ps1"), "the bundle has kinds/extra.ps1, but the plan does not list it"),
        (slip_in("../evil.ps1"), "a file with the invalid name '../evil.ps1'"),
        (slip_in(r"kinds\evil.ps1"), r"a file with the invalid name 'kinds"),
        (slip_in("kinds/evil.ps1."), "a file with the invalid name 'kinds/evil.ps1.'"),
        (slip_in("Engine.psm1"), "the bundle has 'Engine.psm1' twice"),
        (no_plan, "the bundle has no plan.json"),
        (no_zip, "the bundle is not a zip"),
        (other_windows, "the plan is for Windows Server 2022, build 26100; this machine has build 20348"),
    ],
)
@pytest.mark.parametrize("extra", [(), ("-Check",)])
def test_wrong_bytes(bench: Bench, spoil: Callable[[Bench], None], message: str, extra: tuple[str, ...]) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    spoil(bench)
    outcome = bench.run("phase-1", *extra)
    assert (outcome.exit_code, message in outcome.output) == (4, True), outcome.output
    assert not bench.machine.registry.has_key(r"HKLM:\SOFTWARE\Test")


def test_a_machine_of_another_build_is_refused(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    bench.machine.registry.remove_value(CURRENT_VERSION, "CurrentBuildNumber")
    assert bench.run("phase-1").exit_code == 4


def set_version(plan: dict[str, Any]) -> None:
    plan["plan_version"] = 2


def set_kind(plan: dict[str, Any]) -> None:
    plan["phases"][0]["steps"][0]["resources"][0]["kind"] = "magic"


def drop_field(plan: dict[str, Any]) -> None:
    del plan["phases"][0]["steps"][0]["resources"][0]["fields"]["data"]


def repeat_id(plan: dict[str, Any]) -> None:
    plan["phases"][0]["steps"][0]["resources"] *= 2


def repeat_id_later(plan: dict[str, Any]) -> None:
    plan["phases"].append({**plan["phases"][0], "name": "phase-2"})


def rename(plan: dict[str, Any]) -> None:
    plan["phases"][0]["steps"][0]["name"] = "other"


@pytest.mark.parametrize("spoil", [set_version, set_kind, drop_field, repeat_id, repeat_id_later, rename])
def test_a_plan_that_the_engine_cannot_read_is_a_fault(bench: Bench, spoil: Callable[[dict[str, Any]], None]) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    bench.contents["kinds/magic.ps1"] = b""
    bench.plan["files"]["kinds/magic.ps1"] = hashlib.sha256(b"").hexdigest()
    bench.upload()
    assert bench.run("phase-1").exit_code == 0
    spoil(bench.plan)
    bench.upload()
    assert bench.run("phase-1").exit_code == 1


@pytest.mark.parametrize("kind", ["file", "script"])
def test_a_resource_whose_file_the_plan_does_not_list_is_a_fault(bench: Bench, kind: str) -> None:
    file = bench.file(r"C:\Windows\Temp\a.ps1", b"1")
    run = {"arguments": [], "good_exit_codes": [0], "timeout_s": 60}
    script = {"name": "a.ps1", "source": file["source"], "sha256": file["sha256"], **run}
    bench.bundle({"phase-1": [(kind, file if kind == "file" else script)]})
    del bench.contents["files/step/a.ps1"], bench.plan["files"]["files/step/a.ps1"]
    bench.upload()
    outcome = bench.run("phase-1")
    assert (outcome.exit_code, "the plan has no file files/step/a.ps1" in outcome.output) == (1, True)


def test_a_kind_without_its_script_is_a_fault(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.value("a")]})
    del bench.contents["kinds/registry.ps1"], bench.plan["files"]["kinds/registry.ps1"]
    bench.upload()
    outcome = bench.run("phase-1")
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
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.binary("tool")]})
    [url] = bench.web
    bench.web = {} if data is None else {url: data}
    outcome = bench.run("phase-1")
    assert outcome.exit_code == exit_code
    failed = bench.events(outcome, "phase")[-1]
    assert failed["reason"].startswith("step phase-1-step, resource phase-1-step/file:C:\\k\\tool.exe: ")
    assert message in failed["reason"]
    assert "secret" not in outcome.output
    assert len(bench.fetched) == (1 if data is None else 2)
    assert bench.kept("state.json")["phases"]["phase-1"]["status"] == "failed"


def test_a_broken_line_is_tried_again_and_wrong_bytes_once_more(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.binary("tool")]})
    answers: list[bytes | OSError] = [ConnectionResetError("reset"), b"MX", TimeoutError("slow"), b"MZ"]

    def fetch(*_: str | None) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert run_entry(bench.machine, bench.arguments("phase-1"), fetch).exit_code == 0
    assert not answers


def test_a_line_that_stays_broken_fails(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.binary("tool")]})
    asked = []

    def fetch(url: str, *_: str | None) -> bytes:
        asked.append(url)
        raise ConnectionResetError("reset by peer")

    outcome = run_entry(bench.machine, bench.arguments("phase-1"), fetch)
    assert (outcome.exit_code, "reset by peer" in outcome.output, len(asked)) == (6, True, 8)


def test_only_what_is_not_so_is_fetched_once_and_deleted_afterwards(bench: Bench) -> None:
    tool, other = bench.binary("tool"), bench.binary("other", b"MZ2")
    copy = ("file", {**tool[1], "path": r"C:\k\copy.exe"})
    bench.machine.files.make_folder(r"C:\k")
    bench.machine.files.write(r"C:\k\other.exe", b"MZ2")
    bench.bundle({"phase-1": [tool, copy, other]})
    events = [event for event in bench.done("phase-1") if event["event"] == "artifact"]
    assert [(event["name"], event["status"], event["size"]) for event in events] == [
        ("tool", "fetching", 2), ("tool", "ready", 2),
    ]  # fmt: skip
    assert bench.fetched == ["https://artifacts.example/tool?sig=secret"]
    assert not bench.machine.files.exists(rf"{HOME}\artifacts")


def test_an_artifact_is_fetched_late_when_an_earlier_resource_undoes_its_file(bench: Bench) -> None:
    tool, other = bench.binary("tool"), bench.binary("other", b"MZ2")
    bench.machine.files.make_folder(r"C:\k")
    bench.machine.files.write(r"C:\k\tool.exe", b"MZ")
    bench.bundle({"phase-1": [("file", {**other[1], "path": r"C:\K\TOOL.exe"}), tool]})
    outcome = bench.run("phase-1")
    assert [event["name"] for event in bench.events(outcome, "artifact")] == ["other", "other", "tool", "tool"]
    assert [event["status"] for event in bench.events(outcome, "resource")] == ["changed", "changed", "failed"]
    assert "no longer as planned at the end" in outcome.output


def test_an_address_without_tls_is_refused(bench: Bench) -> None:
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.binary("tool")]})
    bench.plan["artifacts"]["tool"]["url"] = "http://user:secret@artifacts.example/tool"
    bench.upload()
    outcome = bench.run("phase-1")
    assert (outcome.exit_code, "http://artifacts.example/tool is not https" in outcome.output) == (6, True)
    assert not bench.fetched


# ---- the plan's proxy

PROXY = "http://proxy.example.com:3128"


def test_downloads_go_through_the_plans_proxy_but_for_its_exceptions(bench: Bench) -> None:
    bench.machine.files.make_folder(r"C:\k")
    tool, other = bench.binary("tool"), bench.binary("other", b"MZ2")
    bench.artifacts["other"]["url"] = url = "https://Mirror.corp:8443/other"
    bench.web[url] = b"MZ2"
    bench.proxy = {"url": PROXY, "bypass": [r"^https://([^/:]+\.)?corp:8443$", r"^https://example$"]}
    bench.proxies[PROXY] = []
    bench.bundle({"phase-1": [tool, other]})
    bench.done("phase-1")
    assert bench.proxies == {PROXY: ["https://artifacts.example/tool?sig=secret"]}
    assert url in bench.fetched


def test_a_proxy_that_nothing_listens_at_fails_the_download(bench: Bench) -> None:
    bench.proxy = {"url": PROXY, "bypass": []}
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.binary("tool")]})
    outcome = bench.run("phase-1")
    message = f"artifact tool from https://artifacts.example/tool through {PROXY}: nothing listens at {PROXY}"
    assert (outcome.exit_code, message in outcome.output) == (6, True), outcome.output
