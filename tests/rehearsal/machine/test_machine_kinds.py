"""Every kind: absent, set, so; nothing changes twice; whatever is spoilt behind its back is found and mended."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from imagegen.base.contents import ROLES
from imagegen.rehearsal.machine import Machine, stock_windows
from imagegen.rehearsal.machine.access import CREATE, CREATOR_OWNER, FOLDERS, ONLY_BELOW, AccessEntry, effective, write
from imagegen.rehearsal.machine.certificates import ROOT, Certificate
from imagegen.rehearsal.machine.installer import UNINSTALL
from imagegen.rehearsal.machine.kinds import BEHAVIOUR
from imagegen.rehearsal.machine.msi import MsiService, make_msi
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, FailureActions
from imagegen.rehearsal.machine.stock import PATH
from imagegen.rehearsal.machine.time_zone import write_time_zone
from imagegen.rehearsal.machine.updates import DEFINITIONS
from imagegen.rehearsal.machine.windows import ENVIRONMENT
from imagegen.steps.kinds import KINDS, PLANNED_AS, PLANNED_KINDS
from imagegen.steps.resource import Resource
from tests.rehearsal.machine import image_support
from tests.rehearsal.machine.conftest import Bench

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rehearsal.machine.conftest import Fields

Spoil = Callable[[Machine], object]

EXE = r"C:\k\tool.exe"
KEY = r"HKLM:\SOFTWARE\Policies\Test"
AGENT_EXE = r"C:\Program Files\Agent\agent.exe"
CONFIG = r"C:\k\config.toml"
DATA = r"C:\k\data"
DLL = r"C:\k\other.dll"
SYSTEM, ADMINISTRATORS, USERS = "S-1-5-18", "S-1-5-32-544", "S-1-5-32-545"
RULE = {"display_name": "kubelet API", "direction": "in", "action": "allow", "protocol": "TCP"}
SERVICE: Fields = {
    "display_name": "The tool",
    "command": f'"{EXE}" --serve',
    "start": "automatic",
    "state": "running",
    "depends_on": ["nsi", "Tcpip"],
    "recovery": {"restart_after_s": 10, "reset_after_s": 86400},
}
FIELDS: dict[str, Fields] = {
    "directory": {"path": r"C:\k\deep\er"},
    "registry": {"key": KEY, "name": "Value", "type": "DWord", "data": 4294967295},
    "service": {"name": "tool", **SERVICE},
    "feature": {"name": "Telnet-Client"},
    "firewall": {"name": "kubelet", **RULE, "port": 10250},
    "acl": {"path": DATA, "entries": [{"sid": USERS, "rights": "read"}, {"sid": SYSTEM, "rights": "full"}]},
    "environment": {"name": "CONTAINER_RUNTIME_ENDPOINT", "value": "npipe:////./pipe/containerd-containerd"},
    "path": {"entry": r"C:\k"},
    "defender": {"process": EXE},
    "volume": {"drive": "C"},
    "command": {
        "name": "time-zone",
        "program": r"C:\Windows\System32\tzutil.exe",
        "arguments": '/s "W. Europe Standard Time_dstoff"',
        "unless": {"arguments": "/g", "matches": [r"\AW\. Europe ", r"_dstoff\s*\Z"]},
        "good_exit_codes": [0],
    },
}
ROOT_DER = b"the bytes of a root certificate"
ROOT_PRINT = hashlib.sha1(ROOT_DER, usedforsecurity=False).hexdigest().upper()
INSTALL_UPDATES = ROLES.joinpath("updates/files/install-updates.ps1").read_bytes()
UPDATES = r"C:\ProgramData\imagegen\updates"
SCRIPT = b"Write-Output 1\r\n"
MARK = r"C:\ProgramData\imagegen\scripts\01-harden.ps1.json"
TASK: Fields = {"program": EXE, "arguments": r'-File "C:\k\a b.ps1" -List C:\k\l.txt', "every_s": 600, "limit_s": 300}
FACTS: dict[str, Any] = {
    "directory": {"exists": True, "open": None},
    "file": {"sha256": hashlib.sha256(b"version = 3\n").hexdigest(), "size": 12},
    "archive": {
        "members": {
            "a.exe": {"sha256": hashlib.sha256(b"a").hexdigest(), "size": 1},
            r"sub\b.dll": {"sha256": hashlib.sha256(b"b").hexdigest(), "size": 1},
        }
    },
    "extract": {"sha256": hashlib.sha256(b"b").hexdigest(), "size": 1},
    "package": {"product": "Agent", "version": "1.2.3.4", "files": {AGENT_EXE: True}, "services": {"agent": True}},
    "certificate": {"sha256": hashlib.sha256(ROOT_DER).hexdigest()},
    "registry": {"type": "DWord", "data": 4294967295},
    "service": SERVICE,
    "feature": {"state": "Installed"},
    "firewall": {**RULE, "port": "10250", "enabled": True, "profile": "Any"},
    "acl": {
        "protected": True,
        "entries": [
            {"sid": SYSTEM, "rights": "full", "inherit": True},
            {"sid": USERS, "rights": "read", "inherit": True},
        ],
    },
    "environment": {"type": "String", "data": "npipe:////./pipe/containerd-containerd"},
    "path": {"entry": r"C:\k"},
    "defender": {"process": EXE},
    "command": {"matches": [True, True]},
    "image": image_support.FACTS,
    "volume": {"size": 50 * 2**30, "largest": 50 * 2**30},
    "script": {"sha256": hashlib.sha256(SCRIPT).hexdigest(), "arguments": ["-Level", "a b"], "exit_code": 0},
    "update": {
        "rounds": 1,
        "asked": True,
        "ubr": 5499,
        "installed": ["KB9000004"],
        "lost": [],
        "missing": [],
        "proxy_left": False,
    },
    "task": {
        **TASK,
        "triggers": "TimeTrigger",
        "start": "2020-01-01T00:00:00Z",
        "ends": "",
        "delay_s": 0,
        "repeats_for_s": None,
        "actions": "Exec",
        "account": SYSTEM,
        "parallel": "IgnoreNew",
        "priority": 6,
        "enabled": True,
        "unconditional": True,
    },
}


def ready(bench: Bench, kind: str) -> Fields:
    """The fields of a resource of this kind, once what it needs is on the machine and on the web."""
    files = bench.machine.files
    files.make_folder(DATA)
    files.write(EXE, b"tool")
    if kind == "file":
        source = bench.text("c.toml", b"version = 3\n")
        return {"path": CONFIG, "sha256": FACTS["file"]["sha256"], "source": source, "artifact": None}
    if kind in ("archive", "extract"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, data in (("bin/a.exe", b"a"), ("bin/sub/b.dll", b"b"), ("bin/LICENSE", b"l")):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        bench.artifact("tools", buffer.getvalue())
        if kind == "extract":
            named = {"artifact": "tools", "member": "bin/sub/b.dll"}
            return {"path": DLL, "sha256": FACTS["extract"]["sha256"], **named}
        members = [{"path": path, "sha256": file["sha256"]} for path, file in FACTS["archive"]["members"].items()]
        return {"artifact": "tools", "into": r"C:\k", "strip": 1, "members": members}
    if kind == "image":
        return image_support.ready_image(bench)
    if kind == "package":
        service = MsiService(name="agent", display_name="Agent", command=f'"{AGENT_EXE}" run', starts=True)
        bench.artifact("agent", make_msi("Agent", "1.2.3.4", {AGENT_EXE: b"agent"}, [service]))
        asked = {"product": "Agent", "version": "1.2.3", "files": [AGENT_EXE], "services": ["agent"]}
        return {"artifact": "agent", **asked, "arguments": ["PORT=COM 1"]}
    if kind == "certificate":
        named = {"store": "Root", "thumbprint": ROOT_PRINT, "subject": "CN=Example Root"}
        return {**named, **FACTS["certificate"], "source": bench.text("root.cer", ROOT_DER)}
    if kind == "update":
        source = bench.text("install-updates.ps1", INSTALL_UPDATES)
        named = {"name": "windows", "source": source, "sha256": hashlib.sha256(INSTALL_UPDATES).hexdigest()}
        return {**named, "rounds": 1, "categories": [DEFINITIONS]}
    if kind == "script":
        facts = FACTS["script"]
        source = bench.text("harden.ps1", SCRIPT)
        run = {"arguments": facts["arguments"], "good_exit_codes": [0, 5], "timeout_s": 60}
        return {"name": "01-harden.ps1", "source": source, "sha256": facts["sha256"], **run}
    return {"name": "rotate-logs", **TASK} if kind == "task" else FIELDS[kind]


def forget_round(record: bytes | None) -> Spoil:
    """After a start of Windows the record is all that there is."""

    def spoil(machine: Machine) -> None:
        machine.updates.asked = False
        machine.files.remove(rf"{UPDATES}\windows.json")
        if record is not None:
            machine.files.write(rf"{UPDATES}\windows.json", record)

    return spoil


def set_service(name: str, value: Value) -> Spoil:
    return lambda machine: machine.services.configure("tool", name, value)


def set_recovery(reset_s: int, *actions: tuple[int, int]) -> Spoil:
    return set_service("FailureActions", Value("Binary", FailureActions(reset_s, actions).pack()))


def set_value(value: Value) -> Spoil:
    return lambda machine: machine.registry.write(KEY, "Value", value)


def change_rule(**changes: str | bool) -> Spoil:
    def spoil(machine: Machine) -> None:
        rule = machine.firewall.rule("kubelet")
        assert rule
        machine.firewall.remove("kubelet")
        machine.firewall.add(dataclasses.replace(rule, **changes))  # type: ignore[arg-type] # fields by name

    return spoil


def change_task(**changes: Any) -> Spoil:  # noqa: ANN401 - fields of any type
    def spoil(machine: Machine) -> None:
        task = machine.tasks.task("rotate-logs")
        assert task
        machine.tasks.register(machine, dataclasses.replace(task, **changes))

    return spoil


def set_zone(name: str) -> Spoil:
    return lambda machine: write_time_zone(machine.registry, name)


HINDERED = "a setting can keep it from running, or from being ended"


def change_settings(**changes: str | None) -> Spoil:
    """None takes the setting away: its default counts."""

    def spoil(machine: Machine) -> None:
        task = machine.tasks.task("rotate-logs")
        assert task
        settings = {**dict(task.settings), **changes}
        kept = tuple((name, value) for name, value in settings.items() if value is not None)
        machine.tasks.register(machine, dataclasses.replace(task, settings=kept))

    return spoil


def change_mark(**changes: Any) -> Spoil:  # noqa: ANN401 - fields of any type
    """None takes the field away."""

    def spoil(machine: Machine) -> None:
        mark = {**FACTS["script"], **changes}
        machine.files.write(MARK, json.dumps({key: value for key, value in mark.items() if value is not None}).encode())

    return spoil


FULL, READ = AccessEntry(SYSTEM, "FullControl", inherit=True), AccessEntry(USERS, "ReadAndExecute", inherit=True)


def set_access(*entries: AccessEntry, protected: bool = True) -> Spoil:
    return lambda machine: write(machine.files, DATA, entries, protected=protected)


def make_other(path: str) -> Spoil:
    """Other bytes, and read-only."""

    def spoil(machine: Machine) -> None:
        machine.files.write(path, b"other")
        machine.files.set_read_only(path, on=True)

    return spoil


def uninstalled_key(machine: Machine) -> str:
    return f"{UNINSTALL}\\{machine.registry.subkeys(UNINSTALL)[0]}"


SPOILS: list[tuple[str, Spoil, str]] = [
    ("directory", lambda m: m.files.remove(r"C:\k\deep"), "there is no folder C:\\k\\deep\\er"),
    ("file", lambda m: m.files.remove(CONFIG), "there is no file C:\\k\\config.toml"),
    ("file", make_other(CONFIG), "sha256 is d9298a10"),
    ("archive", lambda m: m.files.remove(r"C:\k\sub\b.dll"), r"sub\b.dll is not there"),
    ("archive", lambda m: m.files.remove(r"C:\k\sub"), r"sub\b.dll is not there"),
    ("archive", make_other(r"C:\k\A.EXE"), "sha256 of a.exe is d9298a10"),
    ("extract", lambda m: m.files.remove(DLL), f"there is no file {DLL}"),
    ("extract", make_other(DLL), "sha256 is d9298a10"),
    ("package", lambda m: m.registry.remove_key(uninstalled_key(m)), "Agent is not installed"),
    (
        "package",
        lambda m: m.registry.write(uninstalled_key(m), "DisplayVersion", Value("String", "1.2.2")),
        "version is 1.2.2, not 1.2.3",
    ),
    ("package", lambda m: m.files.remove(AGENT_EXE), f"there is no file {AGENT_EXE}"),
    ("package", lambda m: m.services.remove("agent"), "there is no service agent"),
    ("registry", lambda m: m.registry.remove_key(KEY), "there is no value Value"),
    ("registry", lambda m: m.registry.remove_value(KEY, "value"), "there is no value Value"),
    ("registry", set_value(Value("DWord", 1)), "data is 1, not 4294967295"),
    ("registry", set_value(Value("QWord", 4294967295)), "type is QWord, not DWord"),
    ("service", lambda m: m.services.remove("tool"), "there is no service tool"),
    ("service", lambda m: m.services.stop("tool"), "state is stopped, not running"),
    ("service", set_service("DisplayName", Value("String", "the tool")), "display_name is the tool, not The tool"),
    ("service", set_service("ImagePath", Value("ExpandString", EXE)), "command is C:\\k\\tool.exe, not"),
    ("service", set_service("Start", Value("DWord", DISABLED)), "start is disabled, not automatic"),
    ("service", set_service("Start", Value("DWord", 1)), "start is start type 1, not automatic"),
    ("service", set_service("DelayedAutostart", Value("DWord", 1)), "start is delayed, not automatic"),
    ("service", set_service("DependOnService", Value("MultiString", ("Tcpip", "nsi"))), "depends_on is Tcpip, nsi"),
    ("service", set_recovery(1, (1, 10000), (1, 10000)), "recovery is restart after 10 s, reset after 1 s"),
    ("service", set_recovery(86400, (1, 10500)), "recovery is restart after 10.5 s"),
    ("service", set_recovery(86400, (1, 10000), (1, 10000), (0, 0)), "recovery is none of this kind"),
    ("service", set_service("FailureActions", Value("Binary", bytes(24))), "recovery is none of this kind"),
    ("service", set_service("FailureActions", Value("Binary", bytes(3))), "recovery is none of this kind"),
    ("service", set_recovery(86400, (2, 10000)), "recovery is none of this kind"),
    ("service", lambda m: m.registry.remove_value(m.services.key("tool"), "FailureActions"), "recovery is none of"),
    ("feature", lambda m: m.features.uninstall("Telnet-Client"), "Telnet-Client is Available"),
    ("firewall", lambda m: m.firewall.remove("Kubelet"), "there is no rule kubelet"),
    ("firewall", change_rule(display_name="x"), "display_name is x, not kubelet API"),
    ("firewall", change_rule(enabled=False), "it is not enabled"),
    ("firewall", change_rule(direction="out"), "direction is out, not in"),
    ("firewall", change_rule(action="block"), "action is block, not allow"),
    ("firewall", change_rule(protocol="UDP"), "protocol is UDP, not TCP"),
    ("firewall", change_rule(port="10250,10255"), "port is 10250,10255, not 10250"),
    ("firewall", change_rule(profile="Domain"), "profile is Domain, not Any"),
    ("acl", set_access(FULL, READ, protected=False), "it inherits"),
    ("acl", set_access(FULL), f"there is no entry {USERS} read"),
    ("acl", set_access(FULL, READ, AccessEntry(ADMINISTRATORS, "Write", inherit=True)), f"{ADMINISTRATORS} Write"),
    ("acl", set_access(FULL, dataclasses.replace(READ, rights="Modify")), f"there is an entry {USERS} modify"),
    (
        "acl",
        set_access(FULL, dataclasses.replace(READ, inherit=False)),
        f"there is an entry {USERS} read, inherit False",
    ),
    ("acl", set_access(FULL, READ, dataclasses.replace(READ, deny=True)), f"there is an entry {USERS} deny read"),
    ("acl", set_access(FULL, READ, READ), "an entry is duplicated"),
    (
        "acl",
        set_access(FULL, dataclasses.replace(READ, inheritance=FOLDERS)),
        f"there is an entry {USERS} read (ContainerInherit; None), inherit True",
    ),
    (
        "acl",
        set_access(FULL, READ, dataclasses.replace(FULL, propagation=ONLY_BELOW)),
        f"there is an entry {SYSTEM} full (ContainerInherit, ObjectInherit; InheritOnly), inherit True",
    ),
    (
        "environment",
        lambda m: m.registry.remove_value(ENVIRONMENT, FIELDS["environment"]["name"]),
        "no value CONTAINER",
    ),
    (
        "environment",
        lambda m: m.registry.write(ENVIRONMENT, FIELDS["environment"]["name"], Value("String", "x")),
        "data is x, not npipe:////./pipe/containerd-containerd",
    ),
    (
        "path",
        lambda m: m.registry.write(ENVIRONMENT, "Path", Value("String", r"C:\Windows;C:\k\other;")),
        r"C:\k is not on the PATH",
    ),
    ("path", lambda m: m.registry.remove_value(ENVIRONMENT, "Path"), r"C:\k is not on the PATH"),
    ("task", lambda m: m.tasks.unregister("Rotate-Logs"), "there is no task rotate-logs"),
    ("task", change_task(program=r"C:\k\other.exe"), "program is C:\\k\\other.exe, not"),
    ("task", change_task(arguments="-File x.ps1"), "arguments is -File x.ps1, not"),
    ("task", change_task(account="S-1-5-19"), "account is S-1-5-19, not S-1-5-18"),
    ("task", change_task(triggers=("BootTrigger",)), "triggers is BootTrigger, not TimeTrigger"),
    ("task", change_task(triggers=("BootTrigger", "TimeTrigger")), "triggers is BootTrigger, TimeTrigger, not"),
    ("task", change_task(start="2099-01-01T00:00:00Z"), "start is 2099-01-01T00:00:00Z, not 2020-"),
    ("task", change_task(ends="2026-01-01T00:00:00"), "ends is 2026-01-01T00:00:00, not"),
    ("task", change_task(delay_s=3600), "delay_s is 3600, not 0"),
    ("task", change_task(priority=7), "priority is 7, not 6"),
    ("task", change_task(actions=("Exec", "Exec")), "actions is Exec, Exec, not Exec"),
    ("task", change_task(every_s=None), "every_s is None, not 600"),
    ("task", change_task(repeats_for_s=86400), "repeats_for_s is 86400, not None"),
    ("task", change_task(limit_s=259200), "limit_s is 259200, not 300"),
    ("task", change_task(parallel="Parallel"), "parallel is Parallel, not IgnoreNew"),
    ("task", change_task(enabled=False), "it is not enabled"),
    ("task", change_settings(RunOnlyIfIdle="true"), HINDERED),
    ("task", change_settings(RunOnlyIfNetworkAvailable="true"), HINDERED),
    ("task", change_settings(AllowHardTerminate="false"), HINDERED),
    ("task", change_settings(DisallowStartIfOnBatteries="true"), HINDERED),
    ("task", change_settings(StopIfGoingOnBatteries="true"), HINDERED),
    ("task", change_settings(DisallowStartIfOnBatteries=None), HINDERED),
    ("task", change_settings(StopIfGoingOnBatteries=None), HINDERED),
    (
        "command",
        set_zone("W. Europe Standard Time"),
        r"time-zone: the output of 'C:\Windows\System32\tzutil.exe /g' does not match _d",
    ),
    ("command", set_zone("UTC"), r"tzutil.exe /g' does not match \AW\. Europe ; time-zone: the output"),
    ("script", lambda m: m.files.remove(MARK), "the script 01-harden.ps1 has not run"),
    ("script", lambda m: m.files.write(MARK, b'{"sha256": "'), "the script 01-harden.ps1 has not run"),
    ("script", lambda m: m.files.write(MARK, b"[]"), "the script 01-harden.ps1 has not run"),
    ("script", change_mark(exit_code=None), "the script 01-harden.ps1 has not run"),
    ("script", change_mark(sha256="0" * 64), f"it ran with sha256 {'0' * 64}, not {FACTS['script']['sha256']}"),
    ("script", change_mark(arguments=["-Level"]), "it ran with the arguments '-Level', not '-Level a b'"),
    ("script", change_mark(arguments=["-Level", "A b"]), "it ran with the arguments '-Level A b', not '-Level a b'"),
    ("script", change_mark(exit_code=3), "it ended with 3, not with 0 or 5"),
    ("update", forget_round(None), "Windows Update was asked in 0 of 1 rounds"),
    ("update", forget_round(b'{"rounds": 1'), "Windows Update was asked in 0 of 1 rounds"),
    ("update", forget_round(b'{"rounds": 1}'), "Windows Update was asked in 0 of 1 rounds"),
    ("update", forget_round(b"[]"), "Windows Update was asked in 0 of 1 rounds"),
    ("update", lambda m: m.files.write(rf"{UPDATES}\winhttp.txt", b""), "WinHTTP still has the proxy of the updates"),
    *image_support.SPOILS,
    ("certificate", lambda m: m.certificates.remove(ROOT_PRINT, ROOT), "the store Root does not have CN=Example Root"),
    ("certificate", lambda m: m.certificates.add(Certificate(ROOT_PRINT, b"x"), ROOT), "sha256 is 2d711642"),
    ("defender", lambda m: m.defender.include_process(EXE.upper()), f"Defender scans the files that {EXE} opens"),
]


def test_every_kind_of_the_plan_has_its_behaviour() -> None:
    assert BEHAVIOUR.keys() == PLANNED_KINDS
    assert KINDS.keys() == FACTS.keys() == {kind for kind, _, _ in SPOILS}
    assert {name for name, kind in KINDS.items() if kind.planned is not Resource.planned} == PLANNED_AS.keys()


@pytest.mark.parametrize("kind", sorted(FACTS))
def test_absent_then_set_then_so(bench: Bench, kind: str) -> None:
    bench.bundle({"phase-1": [(kind, ready(bench, kind))]})
    drift = bench.run("all", "-Check")
    assert drift.exit_code == 5
    assert [event["status"] for event in bench.events(drift, "resource")] == ["drifted"]
    assert [event["status"] for event in bench.events(bench.run("phase-1"), "resource")] == ["changed"]
    assert bench.kept("report.json")["resources"][0]["facts"] == FACTS[kind]
    before = bench.snapshot()
    assert [event["status"] for event in bench.done("phase-1") if event["event"] == "resource"] == ["ok"]
    assert bench.snapshot() == before


@pytest.mark.parametrize(("kind", "spoil", "reason"), SPOILS, ids=[f"{kind}: {reason}" for kind, _, reason in SPOILS])
def test_what_is_spoilt_is_found_and_mended(bench: Bench, kind: str, spoil: Spoil, reason: str) -> None:
    bench.bundle({"phase-1": [(kind, ready(bench, kind))]})
    bench.done("phase-1")
    spoil(bench.machine)
    outcome = bench.run("phase-1", "-Check")
    assert outcome.exit_code == 5
    assert reason in bench.events(outcome, "resource")[0]["reason"]
    mended = bench.done("phase-1")
    assert [event["status"] for event in mended if event["event"] == "resource"] == ["changed"]
    assert bench.run("phase-1", "-Check").exit_code == 0


def test_nothing_is_remembered_but_what_is_on_the_machine(bench: Bench) -> None:
    """A second plan that asks for something else finds what the first one left, not what it asked for."""
    bench.bundle({"phase-1": [("registry", FIELDS["registry"])]})
    bench.done("phase-1")
    bench.bundle({"phase-1": [("registry", {**FIELDS["registry"], "type": "MultiString", "data": ["B", "a"]})]})
    [event] = bench.events(bench.run("phase-1", "-Check"), "resource")
    assert event["reason"] == "type is DWord, not MultiString; data is 4294967295, not ['B', 'a']"
    bench.done("phase-1")
    assert bench.machine.registry.value(KEY, "VALUE") == Value("MultiString", ("B", "a"))


def test_the_registry_keeps_the_values_beside_the_one_it_sets(bench: Bench) -> None:
    bench.machine.registry.make_key(KEY + r"\Below")
    bench.machine.registry.write(KEY, "Other", Value("String", "stays"))
    bench.bundle({"phase-1": [("registry", FIELDS["registry"])]})
    bench.done("phase-1")
    assert bench.machine.registry.text(KEY, "Other") == "stays"
    assert bench.machine.registry.has_key(KEY + r"\Below")


def test_path_keeps_its_type_and_its_variables(bench: Bench) -> None:
    bench.bundle({"phase-1": [("path", FIELDS["path"])]})
    bench.done("phase-1")
    expected = Value("ExpandString", rf"{PATH};C:\k")
    assert bench.machine.registry.value(ENVIRONMENT, "PATH") == expected


def test_a_member_is_one_of_an_artifact() -> None:
    fields = {"path": CONFIG, "sha256": FACTS["file"]["sha256"], "member": "bin/c.toml"}
    KINDS["file"].model_validate({**fields, "artifact": "tools"})
    with pytest.raises(ValidationError, match="must have artifact, of which member is a file"):
        KINDS["file"].model_validate({**fields, "source": "files/tools/c.toml"})


@pytest.mark.parametrize(("value", "kind"), [(r"C:\k", "String"), (r"%ProgramData%\k", "ExpandString")])
def test_a_variable_with_another_in_it_is_expanded(value: str, kind: str) -> None:
    planned = KINDS["environment"].model_validate({"name": "DATA", "value": value}).planned()
    assert planned.kind == "registry"
    assert planned.fields() == {"key": ENVIRONMENT, "name": "DATA", "type": kind, "data": value}


@pytest.mark.parametrize("entry", [r"C:\K", "C:\\k\\", r" c:\k "])
def test_path_entries_compare_as_windows_reads_them(bench: Bench, entry: str) -> None:
    bench.machine.registry.write(ENVIRONMENT, "Path", Value("ExpandString", rf"C:\Windows;{entry};C:\z"))
    bench.bundle({"phase-1": [("path", FIELDS["path"])]})
    assert bench.run("phase-1", "-Check").exit_code == 0


def test_a_service_field_left_null_is_not_touched(bench: Bench) -> None:
    bench.bundle({"phase-1": [("service", ready(bench, "service"))]})
    bench.done("phase-1")
    nothing = dict.fromkeys(("display_name", "command", "state", "depends_on", "recovery"))
    bench.bundle({"phase-1": [("service", {"name": "TOOL", "start": "manual", **nothing})]})
    bench.done("phase-1")
    assert bench.kept("report.json")["resources"][0]["facts"] == {**SERVICE, "start": "manual"}


def test_a_delayed_start_is_two_registry_values(bench: Bench) -> None:
    bench.bundle({"phase-1": [("service", {**ready(bench, "service"), "start": "delayed"})]})
    bench.done("phase-1")
    services, registry = bench.machine.services, bench.machine.registry
    assert services.start_type("tool") == AUTOMATIC
    assert registry.number(services.key("tool"), "DelayedAutostart") == 1
    packed = registry.value(services.key("tool"), "FailureActions")
    assert packed
    assert packed.data == bytes.fromhex("80510100 00000000 00000000 03000000 14000000" + "01000000 10270000" * 3)


def test_an_access_list_on_a_file_does_not_inherit(bench: Bench) -> None:
    ready(bench, "acl")
    bench.bundle({"phase-1": [("acl", {**FIELDS["acl"], "path": EXE})]})
    bench.done("phase-1")
    entries = bench.kept("report.json")["resources"][0]["facts"]["entries"]
    assert [entry["inherit"] for entry in entries] == [False, False]


def test_who_may_create_may_not_change_what_is_there(bench: Bench) -> None:
    """To create is a right in folders, and CREATOR OWNER's rights are for what is created."""
    ready(bench, "acl")
    entries = [
        *({"sid": SYSTEM, "rights": "full"}, {"sid": USERS, "rights": "read"}),
        *({"sid": USERS, "rights": "create"}, {"sid": CREATOR_OWNER, "rights": "full"}),
    ]
    bench.bundle({"phase-1": [("acl", {"path": DATA, "entries": entries})]})
    bench.done("phase-1")
    found = bench.kept("report.json")["resources"][0]["facts"]["entries"]
    assert sorted((one["sid"], one["rights"]) for one in found) == sorted((e["sid"], e["rights"]) for e in entries)
    files = bench.machine.files
    files.make_folder(rf"{DATA}\volume")
    files.write(rf"{DATA}\token", b"x")
    others = {path: {(e.sid, e.rights) for e in effective(files, path).entries} for path in files.below(DATA)}
    assert others[rf"{DATA}\token"] == {
        *((SYSTEM, "FullControl"), (USERS, "ReadAndExecute"), (CREATOR_OWNER, "FullControl")),
    }
    assert (USERS, CREATE) in {(e.sid, e.rights) for e in effective(files, rf"{DATA}\volume").entries}
    write(files, DATA, [AccessEntry(USERS, CREATE, inherit=True)], protected=True)
    [event] = bench.events(bench.run("phase-1", "-Check"), "resource")
    assert f"there is an entry {USERS} create (ContainerInherit, ObjectInherit; None), inherit True" in event["reason"]


def test_entries_inherited_from_above_are_seen(bench: Bench) -> None:
    ready(bench, "acl")
    write(bench.machine.files, r"C:\k", [AccessEntry(USERS, "Write", inherit=True)], protected=True)
    bench.bundle({"phase-1": [("acl", FIELDS["acl"])]})
    [event] = bench.events(bench.run("phase-1", "-Check"), "resource")
    assert f"it inherits; there is no entry {USERS} read" in event["reason"]
    assert f"there is an entry {USERS} Write, inherit True" in event["reason"]


def test_a_file_takes_its_bytes_from_an_artifact(bench: Bench) -> None:
    ready(bench, "file")
    name = bench.artifact("kubelet", b"MZ kubelet")
    digest = hashlib.sha256(b"MZ kubelet").hexdigest()
    fields = {"path": r"C:\k\kubelet.exe", "sha256": digest, "source": None, "artifact": name}
    bench.bundle({"phase-1": [("file", fields)]})
    bench.done("phase-1")
    assert bench.machine.files.read(r"c:/K/KUBELET.exe") == b"MZ kubelet"
    assert not bench.machine.files.exists(r"C:\k\kubelet.exe.new")


def test_nothing_else_of_the_archive_comes_into_place(bench: Bench) -> None:
    bench.bundle({"phase-1": [("extract", ready(bench, "extract"))]})
    bench.done("phase-1")
    assert bench.machine.files.names(r"C:\k") == ["data", "other.dll", "tool.exe"]


def test_without_defender_nothing_needs_to_be_excluded(tmp_path: Path) -> None:
    bench = Bench(stock_windows(tmp_path, release="2022", cloud="aws", defender=False))
    bench.bundle({"phase-1": [("defender", FIELDS["defender"])]})
    assert [event["status"] for event in bench.done("phase-1") if event["event"] == "resource"] == ["ok"]
    assert bench.kept("report.json")["resources"][0]["facts"] == {"absent": True}


@pytest.mark.parametrize(("code", "good", "exit_code"), [(5, [0, 5], 0), (3010, [0, 3010], 3010), (0, [0, 3010], 0)])
def test_a_script_that_succeeds_needs_a_restart_only_with_3010(
    bench: Bench, code: int, good: list[int], exit_code: int
) -> None:
    fields = {**ready(bench, "script"), "good_exit_codes": good}
    bench.bundle({"phase-1": [("script", fields)], "phase-2": []}, restarts=["phase-1"])
    bench.machine.script_exit_codes["01-harden.ps1"] = code
    assert bench.run("phase-1").exit_code == exit_code
    bench.machine.restart()
    # Nothing runs twice, and the last phase finds it as it was left.
    bench.machine.script_exit_codes["01-harden.ps1"] = 1
    assert bench.run("phase-1").exit_code == 0
    assert bench.run("phase-2").exit_code == 0
    assert bench.kept("report.json")["resources"][0]["facts"]["exit_code"] == code


def test_a_script_that_fails_has_no_mark_and_runs_again(bench: Bench) -> None:
    bench.bundle({"phase-1": [("script", ready(bench, "script"))]})
    bench.machine.script_exit_codes["01-harden.ps1"] = 1
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert "01-harden.ps1 ended with 1, not with 0 or 5" in outcome.output
    assert not bench.machine.files.exists(MARK)
    bench.machine.script_exit_codes.clear()
    bench.done("phase-1")


def test_a_script_that_was_changed_runs_again(bench: Bench) -> None:
    bench.bundle({"phase-1": [("script", ready(bench, "script"))]})
    bench.done("phase-1")
    other = {
        **ready(bench, "script"),
        "source": bench.text("harden.ps1", b"2"),
        "sha256": hashlib.sha256(b"2").hexdigest(),
    }
    bench.bundle({"phase-1": [("script", other)]})
    assert [event["status"] for event in bench.done("phase-1") if event["event"] == "resource"] == ["changed"]


def test_a_busy_installer_is_waited_for_within_the_steps_time(bench: Bench) -> None:
    bench.bundle({"phase-1": [("package", ready(bench, "package"))]})
    bench.machine.installer.busy_for_s = 30
    bench.done("phase-1")
    bench.machine.registry.remove_key(uninstalled_key(bench.machine))
    bench.machine.installer.busy_for_s = 300
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert "msiexec ended with 1618" in outcome.output


def test_defender_excludes_a_path(bench: Bench) -> None:
    fields = {"path": r"C:\var\log\kubelet"}
    bench.bundle({"phase-1": [("defender", fields)]})
    assert bench.run("phase-1").exit_code == 0
    assert bench.machine.defender.excluded_paths == (fields["path"],)
    assert bench.machine.defender.excluded_processes == ()
