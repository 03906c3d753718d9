"""What Windows refuses, each failure naming step, resource and reason; and the effects of resources on others."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.machine import Machine
from imagegen.rehearsal.machine.access import AccessEntry, effective, write
from imagegen.rehearsal.machine.features import REBOOT_PENDING
from imagegen.rehearsal.machine.msi import make_msi
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL
from imagegen.steps.kinds import POWERSHELL

if TYPE_CHECKING:
    from tests.rehearsal.machine.conftest import Bench, Fields

Prepare = Callable[[Machine], object]

ZEROS = "0" * 64
CONTAINERD = r"C:\c\containerd.exe"
RUNNER = r"C:\c\kube-log-runner.exe"


def nothing(_machine: Machine) -> None:
    """The stock machine will do."""


def service(**fields: Any) -> Fields:  # noqa: ANN401 - fields of any type
    empty = dict.fromkeys(("display_name", "command", "depends_on", "recovery"))
    return {"name": "tool", "start": "automatic", "state": "running", **empty, **fields}


def files(*paths: str) -> Prepare:
    def prepare(machine: Machine) -> None:
        for path in paths:
            machine.files.make_folder(path.rpartition("\\")[0])
            machine.files.write(path, b"MZ")

    return prepare


def containers(*paths: str, config: bytes | None = None) -> Prepare:
    def prepare(machine: Machine) -> None:
        machine.features.install("Containers")
        machine.restart()
        files(*paths)(machine)
        if config is not None:
            machine.files.write(r"C:\c\config.toml", config)

    return prepare


def broken_import(machine: Machine) -> None:
    containers(CONTAINERD, config=b"imports = ['C:\\none\\*.toml', 'C:\\c\\conf.d\\*.toml']\n")(machine)
    files(r"C:\c\conf.d\a.txt")(machine)
    machine.files.write(r"C:\c\conf.d\b.toml", b"[debug\n")


def late_dependency(machine: Machine) -> None:
    files(r"C:\c\t.exe")(machine)
    machine.services.create("late", r"C:\c\late.exe", "late", MANUAL)


def containers_pending(machine: Machine) -> None:
    files(CONTAINERD)(machine)
    machine.features.install("Containers")
    machine.registry.remove_key(REBOOT_PENDING)


def script(**fields: Any) -> Fields:  # noqa: ANN401 - fields of any type
    digest = hashlib.sha256(b"1").hexdigest()
    usual = {"arguments": [], "good_exit_codes": [0], "timeout_s": 60}
    return {"name": "01-a.ps1", "source": "files/step/a.ps1", "sha256": digest, **usual, **fields}


def end_script(code: int) -> Prepare:
    return lambda machine: machine.script_exit_codes.update({"01-a.ps1": code})


def file(path: str) -> Fields:
    return {"path": path, "sha256": hashlib.sha256(b"x").hexdigest(), "source": None, "artifact": "x"}


def archive(name: str, **fields: Any) -> Fields:  # noqa: ANN401 - fields of any type
    members = [{"path": "a.exe", "sha256": ZEROS}]
    return {"artifact": name, "into": r"C:\Windows\Temp", "strip": 0, "members": members, **fields}


def extract(name: str, **fields: str) -> Fields:
    return {"path": r"C:\Windows\Temp\a.exe", "sha256": ZEROS, "artifact": name, "member": "a.exe", **fields}


def package(name: str) -> Fields:
    return {"artifact": name, "product": "P", "version": "1.0", "arguments": [], "files": [], "services": []}


def acl(path: str) -> Fields:
    return {"path": path, "entries": [{"sid": "S-1-5-18", "rights": "full"}]}


def command(program: str, arguments: str, asked: str = "/g") -> Fields:
    unless = {"arguments": asked, "matches": ["x"]}
    path = rf"C:\Windows\System32\{program}"
    return {"name": "c", "program": path, "arguments": arguments, "unless": unless, "good_exit_codes": [0]}


RULE = {"name": "r", "display_name": "r", "direction": "in", "action": "allow", "protocol": "TCP", "port": 1}
RUN_SERVICE = f"{CONTAINERD} --run-service"
REFUSALS: list[tuple[str, Fields, Prepare, str]] = [
    ("directory", {"path": r"C:\c\d"}, files(r"C:\c\d"), "is a file"),
    ("directory", {"path": r"D:\c"}, nothing, "cannot find drive D:"),
    ("directory", {"path": r"C:\c\nul"}, nothing, "not a path that Windows accepts"),
    ("file", file(r"C:\none\x"), nothing, r"there is no folder C:\none"),
    ("file", file(r"C:\Users"), nothing, r"C:\Users is a folder"),
    ("file", {**file(r"C:\x"), "sha256": ZEROS}, nothing, f"x.new is {file('')['sha256']}, not {ZEROS}"),
    ("archive", archive("tar", into=r"C:\none"), nothing, r"there is no folder C:\none for archive tar"),
    ("archive", archive("x"), nothing, "unrecognized or damaged archive"),
    ("archive", archive("evil"), nothing, "a path outside the folder"),
    ("archive", archive("link"), nothing, "a link or a device"),
    ("archive", archive("tar"), nothing, r"the sha256 of C:\Windows\Temp\a.exe.new is e3b0c442"),
    ("archive", archive("tar", strip=1), nothing, "tar.exe unpacked no a.exe, which the plan has of archive tar"),
    ("archive", archive("tar"), lambda m: m.files.remove(r"C:\Windows\System32\tar.exe"), "cannot find C:\\Windows"),
    ("extract", extract("tar", path=r"C:\none\a.exe"), nothing, r"there is no folder C:\none"),
    ("extract", extract("tar", path=r"C:\Users"), nothing, r"C:\Users is a folder"),
    ("extract", extract("x"), nothing, "unrecognized or damaged archive"),
    ("extract", extract("tar", member="b/a.exe"), nothing, "tar.exe: b/a.exe: Not found in archive"),
    ("extract", extract("tar"), nothing, r"the sha256 of C:\Windows\Temp\a.exe.new is e3b0c442"),
    ("extract", extract("tar"), lambda m: m.files.remove(r"C:\Windows\System32\tar.exe"), "cannot find C:\\Windows"),
    ("package", package("x"), nothing, "msiexec ended with 1620"),
    ("package", {**package("msi"), "version": "2.0"}, nothing, "not as planned after it was set: version is 1.0"),
    ("package", {**package("msi"), "product": "Q"}, nothing, "not as planned after it was set: Q is not installed"),
    ("package", {**package("msi"), "services": ["s"]}, nothing, "there is no service s"),
    ("service", service(), nothing, "there is no service tool, and the resource has no command to create it"),
    ("service", service(command=r"C:\c\no.exe"), nothing, r"cannot find its program C:\c\no.exe (error 2)"),
    ("service", service(command=r"C:\c\t.exe", start="disabled"), files(r"C:\c\t.exe"), "it is disabled (error 1058)"),
    (
        "service",
        service(command=r"C:\c\t.exe", depends_on=["none"]),
        files(r"C:\c\t.exe"),
        "it depends on none, which does not exist (error 1075)",
    ),
    (
        "service",
        service(command=r"C:\c\t.exe", depends_on=["late"]),
        late_dependency,
        r"service tool cannot be started (error 1068): service late cannot be started: cannot find",
    ),
    (
        "service",
        service(command=r"C:\c\t.exe", depends_on=["tool"]),
        files(r"C:\c\t.exe"),
        "it depends on itself (error 1059)",
    ),
    ("service", service(command=RUN_SERVICE), files(CONTAINERD), "feature Containers is not Installed"),
    (
        "service",
        service(command=RUN_SERVICE),
        containers_pending,
        "feature Containers is not Installed",
    ),
    ("service", service(command=CONTAINERD), containers(CONTAINERD), "runs without --run-service (error 1053)"),
    (
        "service",
        service(command=rf"{RUN_SERVICE} --config C:\c\config.toml"),
        containers(CONTAINERD),
        r"containerd cannot find its config C:\c\config.toml",
    ),
    (
        "service",
        service(command=rf"{RUN_SERVICE} --config=C:\c\config.toml"),
        containers(CONTAINERD, config=b"\xef\xbb\xbfversion = 3\n"),
        r"containerd cannot read its config C:\c\config.toml",
    ),
    (
        "service",
        service(command=rf"{RUN_SERVICE} --config C:\c\config.toml"),
        broken_import,
        r"containerd cannot read its config C:\c\conf.d\b.toml",
    ),
    (
        "service",
        service(command=rf'{RUN_SERVICE} --log-file "C:\logs\a b.log"'),
        containers(CONTAINERD),
        r"containerd.exe cannot open C:\logs\a b.log: there is no folder C:\logs",
    ),
    ("service", service(command=RUNNER), files(RUNNER), "is told of no program to run"),
    (
        "service",
        service(command=rf"{RUNNER} -log-file=C:\c\x.log C:\c\kubelet.exe --v=2"),
        files(RUNNER),
        r"cannot find its program C:\c\kubelet.exe",
    ),
    (
        "service",
        service(command=rf"{RUNNER} --log-file=C:\logs\x.log C:\c\kubelet.exe --v=2"),
        files(RUNNER, r"C:\c\kubelet.exe"),
        r"there is no folder C:\logs",
    ),
    (
        "service",
        service(command=rf"{RUNNER} C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe -File C:\c\start.ps1"),
        files(RUNNER),
        r"powershell.exe cannot find its script C:\c\start.ps1",
    ),
    ("feature", {"name": "DirectPlay"}, nothing, "this Windows has no feature DirectPlay"),
    ("feature", {"name": "FS-SMB1"}, nothing, "(0x800f081f)"),
    ("feature", {"name": "Containers"}, nothing, "it was set and needs a restart, but the plan has none after phase"),
    ("firewall", RULE, lambda m: m.services.stop("mpssvc"), "service mpssvc is not running"),
    (
        "task",
        {"name": "t", "program": r"C:\c\t.exe", "arguments": "x", "every_s": 60, "limit_s": 60},
        lambda m: m.services.stop("Schedule"),
        "the task scheduler does not answer: service Schedule is not running",
    ),
    ("acl", acl(r"C:\none"), nothing, r"there is no C:\none"),
    ("command", command("none.exe", "x"), nothing, r"cannot find C:\Windows\System32\none.exe (error 2)"),
    ("command", command("reg.exe", "x"), nothing, r"the rehearsal does not know what 'C:\Windows\System32\reg.exe /g'"),
    ("command", command("tzutil.exe", "/l"), nothing, r"the rehearsal does not know what"),
    ("command", command("tzutil.exe", "/s x"), nothing, r"tzutil.exe ended with 1: there is no time zone 'x'"),
    ("command", command("tzutil.exe", "/s UTC"), nothing, "not as planned after it was set: c: the output of"),
    ("script", script(), lambda m: m.files.remove(POWERSHELL), f"cannot find {POWERSHELL}"),
    ("script", script(sha256=ZEROS), nothing, f"the sha256 of files/step/a.ps1 is {script()['sha256']}, not {ZEROS}"),
    ("script", script(good_exit_codes=[5, 6]), end_script(7), "01-a.ps1 ended with 7, not with 5 or 6"),
    (
        "script",
        script(good_exit_codes=[0, 3010]),
        end_script(3010),
        "it was set and needs a restart, but the plan has none after phase",
    ),
]


def offer(bench: Bench) -> None:
    """The artifacts and the script that the cases name."""
    bench.text("a.ps1", b"1")
    bench.artifact("x", b"x")
    bench.artifact("msi", make_msi("P", "1.0", {}, []))
    link = tarfile.TarInfo("a.exe")
    link.type, link.linkname = tarfile.SYMTYPE, "b.exe"
    for name, entry in (("tar", tarfile.TarInfo("a.exe")), ("evil", tarfile.TarInfo("../a.exe")), ("link", link)):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            tar.addfile(entry)
        bench.artifact(name, buffer.getvalue())


@pytest.mark.parametrize(
    ("kind", "fields", "prepare", "reason"),
    REFUSALS,
    ids=[f"{kind}: {reason}" for kind, _, _, reason in REFUSALS],
)
def test_windows_refuses(bench: Bench, kind: str, fields: Fields, prepare: Prepare, reason: str) -> None:
    offer(bench)
    prepare(bench.machine)
    bench.bundle({"phase-1": [(kind, fields)]})
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6, outcome.output
    last = bench.events(outcome, "phase")[-1]
    assert last["status"] == "failed"
    assert reason in last["reason"]
    assert last["reason"].startswith(f"step phase-1-step, resource phase-1-step/{kind}:")
    assert bench.events(outcome, "resource")[-1]["status"] == ("changed" if "was set and" in reason else "failed")


@pytest.mark.parametrize(
    ("command", "log"),
    [
        (rf"{RUN_SERVICE} --log-file C:\c\x.log", "x.log"),
        (rf"{RUN_SERVICE} --log-file=C:\c\x.log --log-level debug", "x.log"),
        (RUN_SERVICE, None),
        (rf"{RUNNER} --log-file=C:\c\x.log --log-file-size=1Mi C:\c\kubelet.exe --v=2", "x.log"),
        (rf"{RUNNER} C:\c\kubelet.exe --log-file=C:\c\x.log", None),
        (r"C:\c\kubelet.exe --windows-service --log-file=C:\c\x.log", None),
    ],
)
def test_a_program_makes_the_log_that_it_is_told_of(bench: Bench, command: str, log: str | None) -> None:
    containers(CONTAINERD, RUNNER, r"C:\c\kubelet.exe")(bench.machine)
    bench.bundle({"phase-1": [("service", service(command=command))]})
    bench.done("phase-1")
    made = [name for name in bench.machine.files.names(r"C:\c") if name.endswith(".log")]
    assert made == ([log] if log else [])


def running_tool(bench: Bench) -> Machine:
    machine = bench.machine
    files(r"C:\c\t.exe")(machine)
    machine.services.create("tool", r"C:\c\t.exe --x", "tool", AUTOMATIC)
    machine.services.start("tool")
    return machine


def test_a_service_runs_only_while_its_program_is_there(bench: Bench) -> None:
    machine = running_tool(bench)
    machine.files.remove(r"C:\c")
    assert not machine.services.is_running("tool")
    bench.bundle({"phase-1": [("service", service())]})
    assert r"cannot find its program C:\c\t.exe" in bench.run("phase-1").output


IN_USE = r"C:\c\t.exe is in use by service tool: stop service tool, or rebuild the image"


def test_the_program_of_a_running_service_cannot_be_replaced(bench: Bench) -> None:
    machine = running_tool(bench)
    bench.artifact("x", b"x")
    bench.bundle({"phase-1": [("file", file(r"C:\c\t.exe"))]})
    assert IN_USE in bench.run("phase-1").output
    assert machine.files.names(r"C:\c") == ["t.exe"]
    machine.services.stop("tool")
    bench.done("phase-1")


def tools(bench: Bench, **contents: bytes) -> Fields:
    """An archive of these programs and an empty folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo("conf.d/")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in contents.items():
            entry = tarfile.TarInfo(f"{name}.exe")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    bench.artifact("tar", buffer.getvalue())
    members = [{"path": f"{name}.exe", "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()]
    return archive("tar", into=r"C:\c", members=members)


def test_an_archive_cannot_replace_the_program_of_a_running_service(bench: Bench) -> None:
    machine = running_tool(bench)
    bench.bundle({"phase-1": [("archive", tools(bench, t=b"new", u=b"u"))]})
    assert IN_USE in bench.run("phase-1").output
    assert machine.files.names(r"C:\c") == ["t.exe"]
    assert machine.files.read(r"C:\c\t.exe") == b"MZ"
    machine.services.stop("tool")
    bench.done("phase-1")


def test_an_archive_brings_back_what_is_gone_beside_a_running_program(bench: Bench) -> None:
    machine = running_tool(bench)
    bench.bundle({"phase-1": [("archive", tools(bench, t=b"MZ", u=b"u", v=b"v"))]})
    bench.done("phase-1")
    access = [AccessEntry("S-1-5-18", "FullControl", inherit=False)]
    for name in ("t", "u", "v"):
        write(machine.files, rf"C:\c\{name}.exe", access, protected=True)
    machine.files.remove(r"C:\c\u.exe")
    bench.done("phase-1")
    assert machine.services.is_running("tool")
    assert machine.files.names(r"C:\c") == ["t.exe", "u.exe", "v.exe"]
    # What was right was not written again: it kept its access list.
    assert [effective(machine.files, rf"C:\c\{name}.exe").protected for name in ("t", "u", "v")] == [True, False, True]


def test_only_what_the_plan_lists_comes_into_place_and_the_report_names_the_others(bench: Bench) -> None:
    bench.machine.files.make_folder(r"C:\c")
    others = {f"x{number:02}": b"x" for number in range(11)}
    kind, fields = "archive", tools(bench, t=b"t", version=b"dll", **others)
    bench.bundle({"phase-1": [(kind, {**fields, "members": fields["members"][:1]})], "phase-2": []})
    assert "left out, because the plan does not list them: 12 files" in bench.run("phase-1").output
    bench.done("phase-2")
    assert bench.machine.files.names(r"C:\c") == ["t.exe"]
    first = sorted(["version.exe", *(f"{name}.exe" for name in others)])[:10]
    assert bench.kept("report.json")["left_out"] == {"phase-1-step/archive:tar": {"count": 12, "names": first}}


def test_kubelet_is_in_use_by_the_service_whose_script_starts_it(bench: Bench) -> None:
    machine = bench.machine
    files(RUNNER, r"C:\c\start.ps1", r"C:\c\kubelet.exe")(machine)
    powershell = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
    command = rf"{RUNNER} {powershell} -File C:\c\start.ps1 -Kubelet C:\c\kubelet.exe"
    machine.services.create("kubelet", command, "kubelet", AUTOMATIC)
    machine.services.start("kubelet")
    bench.artifact("x", b"x")
    bench.bundle({"phase-1": [("file", file(r"C:\c\start.ps1")), ("file", file(r"C:\c\kubelet.exe"))]})
    assert r"C:\c\kubelet.exe is in use by service kubelet: stop service kubelet" in bench.run("phase-1").output
    assert machine.files.read(r"C:\c\start.ps1") == b"x"
    machine.files.remove(r"C:\c\kubelet.exe")
    assert not machine.services.is_running("kubelet")


def test_defender_that_is_disabled_scans_nothing(bench: Bench) -> None:
    services = bench.machine.services
    services.configure("WinDefend", "Start", Value("DWord", DISABLED))
    bench.bundle({"phase-1": [("defender", {"process": r"C:\c\x.exe"})]})
    assert bench.run("phase-1", "-Check").exit_code == 5, "it still runs"
    services.stop("WinDefend")
    bench.done("phase-1")
    assert bench.kept("report.json")["resources"][0]["facts"] == {"absent": True}


@pytest.mark.parametrize(
    ("starts_after_s", "facts"),
    [(60, {"process": r"C:\c\x.exe"}), (None, {"unavailable": "service WinDefend is not running (0x800106ba)"})],
)
def test_defender_that_still_starts_is_waited_for(
    bench: Bench, starts_after_s: int | None, facts: dict[str, str]
) -> None:
    machine = bench.machine
    machine.services.stop("WinDefend")
    if starts_after_s:
        machine.later(starts_after_s, lambda: machine.services.start("WinDefend"))
    bench.bundle({"phase-1": [("defender", {"process": r"C:\c\x.exe"})]})
    bench.done("phase-1")
    assert bench.kept("report.json")["resources"][0]["facts"] == facts


def test_replacing_a_file_loses_its_access_list(bench: Bench) -> None:
    bench.artifact("x", b"x")
    bench.bundle({"phase-1": [("file", file(r"C:\x")), ("acl", acl(r"C:\x"))]})
    bench.done("phase-1")
    bench.machine.files.write(r"C:\x", b"spoilt")
    events = [event for event in bench.done("phase-1") if event["event"] == "resource"]
    assert [event["status"] for event in events] == ["changed", "changed"]
    assert "it inherits" in events[1]["reason"]


def test_a_missing_folder_is_found_for_all_that_lay_in_it(bench: Bench) -> None:
    bench.artifact("x", b"x")
    resources = [("directory", {"path": r"C:\c"}), ("file", file(r"C:\c\x")), ("acl", acl(r"C:\c"))]
    bench.bundle({"phase-1": resources})
    bench.done("phase-1")
    bench.machine.files.remove(r"C:\c")
    statuses = [event["status"] for event in bench.events(bench.run("phase-1", "-Check"), "resource")]
    assert statuses == ["drifted", "drifted", "drifted"]
    bench.done("phase-1")


def test_settings_under_a_service_key_do_not_make_a_service(bench: Bench) -> None:
    """Containers brings its service hns although a setting of it was written before."""
    machine = bench.machine
    machine.registry.make_key(r"HKLM:\SYSTEM\CurrentControlSet\Services\hns\State")
    assert not machine.services.exists("hns")
    assert machine.features.install("Containers")
    machine.restart()
    assert machine.services.is_running("hns")
    assert not machine.services.exists("none")


def test_a_service_that_stops_for_a_new_command_takes_along_what_depends_on_it(bench: Bench) -> None:
    machine = running_tool(bench)
    machine.services.create("other", r"C:\c\t.exe", "other", AUTOMATIC, depends_on=["TOOL"])
    machine.services.start("other")
    bench.bundle({"phase-1": [("service", service(command=r"C:\c\t.exe --y"))]})
    bench.done("phase-1")
    assert [machine.services.is_running(name) for name in ("tool", "other")] == [True, False]


def test_a_file_that_is_not_there_is_pythons_own_error_too(bench: Bench) -> None:
    with pytest.raises(FileNotFoundError, match=r"cannot find file C:\\none"):
        bench.machine.files.read(r"C:\none")


def test_a_copy_that_is_wrong_does_not_stay(bench: Bench) -> None:
    offer(bench)
    bench.bundle({"phase-1": [("file", {**file(r"C:\x"), "sha256": ZEROS})]})
    assert bench.run("phase-1").exit_code == 6
    assert not bench.machine.files.exists(r"C:\x.new")


def test_a_feature_that_is_pending_without_a_restart_to_come_is_not_so(bench: Bench) -> None:
    containers_pending(bench.machine)
    bench.bundle({"phase-1": [("feature", {"name": "Containers"})]})
    [event] = bench.events(bench.run("phase-1", "-Check"), "resource")
    assert event["reason"] == "Containers is InstallPending, but no restart is pending"


def test_restart_does_what_windows_does(bench: Bench) -> None:
    machine = running_tool(bench)
    machine.services.create("hand", r"C:\c\t.exe", "by hand", MANUAL)
    machine.services.start("hand")
    machine.services.create("gone", r"C:\c\gone.exe", "gone", AUTOMATIC)
    machine.services.create("needs", r"C:\c\t.exe", "needs gone", AUTOMATIC, depends_on=["gone"])
    machine.features.install("Hyper-V")
    assert (machine.features.state("hyper-v"), machine.restart_pending()) == ("InstallPending", True)
    boots = machine.boot_count
    machine.restart()
    assert (machine.features.state("Hyper-V"), machine.restart_pending()) == ("Installed", False)
    assert machine.boot_count == boots + 1
    assert [machine.services.is_running(name) for name in ("tool", "hand", "gone", "needs", "Tcpip")] == [
        True, False, False, False, True,
    ]  # fmt: skip


def test_a_quoted_and_an_unquoted_command_name_the_same_program(bench: Bench) -> None:
    machine = bench.machine
    files(r"C:\Program Files\A B\t.exe")(machine)
    for name, command in (("q", r'"C:\Program Files\A B\t.exe" --x'), ("u", r"C:\Program Files\A B\t.exe --x")):
        machine.services.create(name, command, name, MANUAL)
        machine.services.start(name)
    machine.files.remove(r"C:\Program Files\A B\t.exe")
    assert not machine.services.is_running("q")
    assert not machine.services.is_running("u")


@pytest.mark.parametrize(
    ("kind", "data"), [("DWord", 2**32), ("DWord", -1), ("QWord", "1"), ("String", 1), ("MultiString", "x")]
)
def test_a_registry_value_has_the_type_it_says(kind: str, data: int | str) -> None:
    with pytest.raises(RefusedByWindows, match="cannot hold"):
        Value(kind, data)
