"""Sealing the machine: what is refused, what is gone afterwards."""

from __future__ import annotations

import dataclasses
import importlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.contents import PACKER
from imagegen.catalog.facts import table
from imagegen.config.checks import lies_at
from imagegen.config.model import Timeouts
from imagegen.rehearsal.clouds import guest_agents
from imagegen.rehearsal.clouds.aws.launch_agent import ANSWERS as ANSWERS_OF_EC2LAUNCH
from imagegen.rehearsal.clouds.azure.guest import AGENTS as AZURE
from imagegen.rehearsal.clouds.azure.guest import GUEST_AGENT
from imagegen.rehearsal.machine import Machine, generalise, stock_windows
from imagegen.rehearsal.machine.answers import make_answer_file
from imagegen.rehearsal.machine.bundle import CHECK_HOME
from imagegen.rehearsal.machine.features import REBOOT_PENDING
from imagegen.rehearsal.machine.generalise import (
    ANSWER_FOLDERS,
    ANSWERS,
    BUILDER_TASK,
    EMPTIED,
    LEFTOVERS,
    PROFILE_EMPTIED,
    PROFILE_LEFTOVERS,
    SYSPREP_CALLS,
    SYSTEM_PROFILE,
    USERS,
    WINLOGON,
    WINRM,
)
from imagegen.rehearsal.machine.hns import Network
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.sealing_losses import find_sealing_losses
from imagegen.rehearsal.machine.services import AUTOMATIC, MANUAL
from imagegen.rehearsal.machine.stock import COMPILER, IMAGE_STATE, LISTENERS, SYSPREP_STATUS
from imagegen.rehearsal.machine.windows import SYSTEM32
from tests.rehearsal.machine.conftest import sha

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.rehearsal.machine.conftest import Bench

HOME = r"C:\ProgramData\imagegen"
CLOUDBASE = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init"
UNATTEND = CLOUDBASE + r"\conf\Unattend.xml"
RUN_ONCE = r"C:\ProgramData\Amazon\EC2Launch\state\.run-once"
PANTHER = r"C:\Windows\Panther\unattend.xml"
DISM = rf"{SYSTEM32}\dism.exe"
LEFT = (
    r"C:\Windows\Temp\imagegen-bundle.zip",
    r"C:\Windows\Temp\imagegen-start.ps1",
    r"C:\Windows\Temp\imagegen-generalise.ps1",
    rf"{CHECK_HOME}\bundle\plan.json",
    r"C:\Windows\Temp\packer-ps-env-vars-1.ps1",
    r"C:\Windows\Temp\Script-1.ps1",
    r"C:\Windows\Temp\winrmcp-1.tmp",
    r"C:\Windows\Temp\other.log",
    r"C:\Windows\Temp\packer-1\x.exe",
    r"C:\ProgramData\ssh\ssh_host_rsa_key",
    r"C:\Users\Administrator\AppData\Local\Temp\winrmcp-2.tmp",
    r"C:\Users\Administrator\AppData\Roaming\Microsoft\Windows\PowerShell\PSReadLine\ConsoleHost_history.txt",
    r"C:\Windows\System32\config\systemprofile\AppData\Local\Temp\winrmcp-3.tmp",
    rf"{HOME}\engine.log",
    rf"{HOME}\report.json",
    rf"{HOME}\bundle\seal.psm1",
)
BASE_ANSWERS = (PANTHER, r"C:\Windows\Panther\Unattend\unattend.xml", r"C:\Windows\System32\Sysprep\unattend.xml")
NODE_ANSWERS = b"the answers of a node's first boot"
KEPT = (r"C:\ProgramData\ssh\sshd_config", rf"{HOME}\manifest.json")


def built(root: Path, cloud: str) -> Machine:
    machine = stock_windows(root, release="2025", cloud=cloud)
    for path in (*LEFT, *BASE_ANSWERS, *KEPT, UNATTEND, CLOUDBASE + r"\service.exe"):
        machine.files.make_folder(path.rpartition("\\")[0])
        machine.files.write(path, NODE_ANSWERS if path == UNATTEND else b"x")
    machine.files.set_read_only(LEFT[0], on=True)
    machine.services.create("cloudbase-init", f'"{CLOUDBASE}\\service.exe"', "Cloud Initialization", MANUAL)
    return machine


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_sealed_machine_holds_nothing_of_the_build(tmp_path: Path, cloud: str) -> None:
    machine = built(tmp_path, cloud)
    machine.hns.networks["host"] = Network("host", "NAT", "172.20.0.0/16", "172.20.0.1")
    outcome = generalise(machine, cloud=cloud)
    assert outcome.exit_code == 0, outcome.output
    assert not machine.hns.networks
    assert machine.registry.text(IMAGE_STATE, "ImageState") == "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"
    assert [path for path in (*LEFT, *BASE_ANSWERS, CHECK_HOME, RUN_ONCE) if machine.files.exists(path)] == [PANTHER]
    answers = {"azure": NODE_ANSWERS, "aws": make_answer_file(ANSWERS_OF_EC2LAUNCH)}[cloud]
    assert machine.files.read(PANTHER) == answers, "the one that sysprep keeps for a node's first boot"
    assert all(machine.files.is_file(path) for path in KEPT)
    assert machine.files.names(HOME) == ["manifest.json"]
    assert not machine.registry.subkeys(LISTENERS)
    [thumbprint] = machine.certificates.thumbprints()
    assert machine.files.read(r"C:\Windows\Setup\Scripts\certificates.txt") == f"{thumbprint}\r\n".encode()


REFUSALS: list[tuple[str, Callable[[Machine], object], str]] = [
    ("aws", lambda m: m.files.remove(rf"{HOME}\report.json"), "there is no report.json"),
    ("aws", lambda m: m.files.remove(HOME), "seal.psm1"),
    ("aws", lambda m: m.registry.make_key(REBOOT_PENDING), "restart pending"),
    ("aws", lambda m: m.services.remove("cloudbase-init"), "must exist with start type manual"),
    (
        "azure",
        lambda m: m.services.configure("cloudbase-init", "Start", Value("DWord", AUTOMATIC)),
        "must exist with start type manual",
    ),
    ("azure", lambda m: m.services.start("cloudbase-init"), "is running, not Stopped"),
    ("azure", lambda m: m.files.remove(UNATTEND), f"there is no {UNATTEND}"),
    ("azure", lambda m: m.services.stop("RdAgent"), "service RdAgent is not running"),
    ("aws", lambda m: m.files.remove(r"C:\Program Files\Amazon\EC2Launch\EC2Launch.exe"), "EC2Launch.exe"),
    ("azure", lambda m: m.files.remove(r"C:\Windows\System32\Sysprep\sysprep.exe"), "sysprep.exe"),
    ("aws", lambda m: put(m, WINLOGON, "AutoAdminLogon", Value("String", "1")), "AutoAdminLogon is on"),
    ("aws", lambda m: put(m, WINLOGON, "DefaultPassword", Value("String", "x")), "a DefaultPassword is set"),
    ("aws", lambda m: put(m, WINRM, "auth_basic", Value("DWord", 1)), "WinRM has auth_basic on"),
    ("aws", lambda m: put(m, WINRM, "allow_unencrypted", Value("DWord", 1)), "WinRM has allow_unencrypted on"),
    (
        "azure",
        lambda m: m.services.create("agent", rf'"{AZURE.extensions}\A\a.exe" -x', "Agent", MANUAL),
        rf"an extension is installed: {AZURE.extensions}\A\a.exe",
    ),
]


def put(machine: Machine, key: str, name: str, value: Value) -> None:
    machine.registry.make_key(key)
    machine.registry.write(key, name, value)


@pytest.mark.parametrize(("cloud", "spoil", "message"), REFUSALS)
def test_a_machine_that_is_not_ready_is_refused(
    tmp_path: Path, cloud: str, spoil: Callable[[Machine], object], message: str
) -> None:
    machine = built(tmp_path, cloud)
    spoil(machine)
    left = [path for path in LEFT if machine.files.exists(path)]
    outcome = generalise(machine, cloud=cloud)
    assert outcome.exit_code != 0
    assert message in outcome.output
    assert machine.registry.text(IMAGE_STATE, "ImageState") == "IMAGE_STATE_COMPLETE"
    assert [path for path in LEFT if machine.files.exists(path)] == left, "for the log, and for another try"
    assert machine.registry.subkeys(LISTENERS)


def test_a_machine_that_sysprep_gave_up_is_sealed_by_another_try(tmp_path: Path) -> None:
    machine = built(tmp_path, "aws")
    state = machine.registry.value(SYSPREP_STATUS, "GeneralizationState")
    assert state
    machine.registry.write(SYSPREP_STATUS, "GeneralizationState", Value("DWord", 4))
    outcome = generalise(machine, cloud="aws")
    assert (outcome.exit_code, "the machine is not generalised after 600 s" in outcome.output) == (1, True)
    assert all(machine.files.is_file(path) for path in LEFT)
    machine.registry.write(SYSPREP_STATUS, "GeneralizationState", state)
    assert generalise(machine, cloud="aws").exit_code == 0


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_what_sysprep_cannot_call_is_removed(tmp_path: Path, cloud: str) -> None:
    """An agent that updates itself during the build takes its DLL away and leaves the entry."""
    machine = built(tmp_path, cloud)
    machine.registry.make_key(SYSPREP_CALLS)
    there, gone = r"C:\Windows\System32\there.dll", r"C:\WindowsAzure\GuestAgent_1\VMAgentDisabler.dll"
    machine.files.write(there, b"x")
    for name, dll in (("kept", there), ("removed", gone)):
        machine.registry.write(SYSPREP_CALLS, name, Value("String", f"{dll},Generalize"))
    assert generalise(machine, cloud=cloud).exit_code == 0
    assert list(machine.registry.values(SYSPREP_CALLS)) == ["kept"]


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_the_queued_assemblies_are_compiled(tmp_path: Path, cloud: str) -> None:
    """PowerShell, which starts kubelet, starts faster at first boot."""
    machine = built(tmp_path, cloud)
    assert machine.assemblies_queued
    assert f"{COMPILER} executeQueuedItems /nologo /silent ended with 0" in generalise(machine, cloud=cloud).output
    assert not machine.assemblies_queued


def test_a_tool_that_fails_does_not_fail_the_seal(tmp_path: Path) -> None:
    machine = built(tmp_path, "azure")
    tools = (DISM, COMPILER, rf"{SYSTEM32}\defrag.exe")
    for tool in tools:
        machine.files.remove(tool)
    outcome = generalise(machine, cloud="azure")
    assert (outcome.exit_code, machine.assemblies_queued, machine.replaced_components) == (0, True, True)
    failed = [line.split(" ")[0] for line in outcome.output.splitlines() if " failed: " in line]
    assert failed == list(tools)


def test_the_script_calls_the_models_compiler() -> None:
    script = (PACKER / "guest" / "seal.psm1").read_text()
    path = re.search(r"Combine\(\$env:SystemRoot, '(Microsoft\.NET\\.+)'\)", script)
    assert path
    assert rf"C:\Windows\{path[1]}" == COMPILER
    assert "-ArgumentList 'executeQueuedItems'" in script


def test_an_update_can_still_be_removed_from_a_node() -> None:
    assert "ResetBase'" not in (PACKER / "guest" / "seal.psm1").read_text()


def test_free_blocks_are_given_back_where_the_clouds_disk_takes_them() -> None:
    """EBS has no TRIM: it keeps what was ever written."""
    scripts = {cloud: (PACKER / cloud / "generalise.ps1").read_text() for cloud in ("aws", "azure")}
    assert {cloud: "Invoke-Seal -Trim" in script for cloud, script in scripts.items()} == {
        cloud: guest_agents(cloud).trims for cloud in scripts
    }


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_sealing_has_time_for_each_of_its_waits(cloud: str) -> None:
    scripts = (PACKER / "guest" / "seal.psm1").read_text(), (PACKER / cloud / "generalise.ps1").read_text()
    waits_s = [int(wait) for script in scripts for wait in re.findall(r" -TimeoutSeconds ([0-9]+)", script)]
    assert sum(waits_s) < 60 * Timeouts().generalise


def test_the_script_removes_the_entries_of_the_models_key() -> None:
    script = (PACKER / "guest" / "seal.psm1").read_text()
    key = re.search(r"Use-RegistryKey -Key '(.+SysPrepExternal.+)' -Write ", script)
    pattern = re.search(r"\[regex\]::Match\(\[string\]\$Opened\.GetValue\(\$name\), '(.+)'\)", script)
    assert key
    assert pattern
    assert key[1] == SYSPREP_CALLS
    texts = {
        r"C:\WindowsAzure\GuestAgent_1\Disabler.dll,Disable": r"C:\WindowsAzure\GuestAgent_1\Disabler.dll",
        r'0x00000003,"C:\Program Files\a b\c.DLL",Call': r"C:\Program Files\a b\c.DLL",
        "Call": None,
    }
    found = {text: re.search(pattern[1], text) for text in texts}
    assert {text: match and match[0] for text, match in found.items()} == texts


def test_the_builders_account_is_listed_where_the_cloud_leaves_it_open(tmp_path: Path) -> None:
    """EC2Launch gives the account a new password at first boot; on Azure nobody does."""
    accounts = r"C:\Windows\Setup\Scripts\accounts.txt"
    listed = {}
    for cloud in ("aws", "azure"):
        machine = built(tmp_path / cloud, cloud)
        assert generalise(machine, cloud=cloud).exit_code == 0
        listed[cloud] = machine.files.read(accounts) if machine.files.is_file(accounts) else None
    assert listed == {"aws": None, "azure": b"500\r\n"}
    scripts = {cloud: (PACKER / cloud / "generalise.ps1").read_text() for cloud in listed}
    assert [cloud for cloud, script in scripts.items() if f"'{accounts}' -Text \"500`r`n\"" in script] == ["azure"]
    first_boot = (PACKER.parent / "ansible-win/roles/cloudbase-init/files/first-boot.ps1").read_text()
    assert '"$PSScriptRoot\\accounts.txt"' in first_boot


EXTENSION = r"C:\Packages\Plugins\Microsoft.Compute.CustomScriptExtension"
OPEN_LOG = r"C:\WindowsAzure\Logs\WaAppAgent.log"


def test_nothing_of_an_extension_is_left(tmp_path: Path) -> None:
    machine = built(tmp_path, "azure")
    left = [EXTENSION, r"C:\AzureData\CustomData.bin", OPEN_LOG, *AZURE.leftovers]
    assert [path for path in left if not machine.files.exists(path)] == [], "or this test shows nothing"
    programs = [path for path in AZURE.files if machine.files.is_file(path)]
    assert generalise(machine, cloud="azure").exit_code == 0
    gone = [path for path in (*left, r"C:\Packages", r"C:\AzureData") if not machine.files.exists(path)]
    assert gone == [path for path in (*left, r"C:\Packages", r"C:\AzureData") if path != OPEN_LOG]
    assert programs == [path for path in AZURE.files if machine.files.is_file(path)] != []
    assert all(machine.services.is_running(name) for name in ("RdAgent", GUEST_AGENT))


def test_an_extension_that_starts_after_the_checks_stays_whole(tmp_path: Path) -> None:
    """A policy of the subscription may add it to every machine. What it needs is not known, so nothing of it goes."""
    machine = built(tmp_path, "azure")
    machine.registry.write(IMAGE_STATE, "ImageState", Value("String", "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"))
    files = [rf"C:\Packages\Plugins\Monitor\1.0\{name}" for name in ("monitor.exe", "settings.json")]
    for path in files:
        machine.files.make_folder(path.rpartition("\\")[0])
        machine.files.write(path, b"x")
    machine.services.create("monitor", files[0], "Monitor", AUTOMATIC)
    machine.services.start("monitor")
    assert generalise(machine, cloud="azure").exit_code == 0
    assert [path for path in files if machine.files.is_file(path)] == files
    assert not machine.files.exists(EXTENSION)
    machine.services.stop("monitor")
    machine.services.stop("RdAgent")
    machine.files.make_folder(HOME + r"\bundle")
    for path in (rf"{HOME}\report.json", rf"{HOME}\bundle\seal.psm1"):
        machine.files.write(path, b"x")
    machine.services.start("RdAgent")
    assert generalise(machine, cloud="azure").exit_code == 0
    assert not machine.files.exists(r"C:\Packages")


def test_a_file_that_is_open_stays_and_fails_no_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows is generalised already: another build would find the same file open."""
    machine = built(tmp_path, "azure")
    held = AZURE.leftovers[2]
    agents = dataclasses.replace(AZURE, open_files={**AZURE.open_files, held: "RdAgent"})
    module = importlib.import_module("imagegen.rehearsal.machine.generalise")
    monkeypatch.setattr(module, "guest_agents", lambda _: agents)
    outcome = generalise(machine, cloud="azure")
    assert outcome.exit_code == 0
    assert [path for path in AZURE.leftovers if machine.files.exists(path)] == [held, OPEN_LOG]
    stays = [line.partition(" stays in the image") for line in outcome.output.splitlines()]
    assert [path for path, found, _ in stays if found] == [
        EXTENSION,
        r"C:\Packages",
        OPEN_LOG,
    ]


def test_what_agents_left_is_the_same_in_script_model_and_catalogue() -> None:
    script = (PACKER / "azure" / "generalise.ps1").read_text()
    folders = re.findall(r"Clear-AgentFolder -Parent '([^']+)' -Name '([^']+)' -TimeoutSeconds \d+\n", script)
    assert tuple(folders) == AZURE.left_folders
    assert re.findall(r"Clear-File -Folder '([^']+)'", script) == [AZURE.logs]
    assert re.findall(r"Assert-NoAgent -Folder '([^']+)'", script) == [AZURE.extensions]
    assert [f"HKLM:\\{key}" for key in re.findall(r"\$state = '([^']+)'", script)] == [AZURE.state]
    assert "Clear-Optional -What $state -Clear { [Microsoft.Win32.Registry]::LocalMachine.DeleteSubKeyTree($s" in script
    own = table("machines")["systems_own"]["azure"]["paths"]
    assert all(any(path.startswith(f"{folder}\\") for folder in own) for path in AZURE.leftovers)
    # The agents' programs are in none of these folders.
    deleted = (r"C:\Packages", r"C:\AzureData", AZURE.logs)
    assert not [path for path in AZURE.files if path.startswith(tuple(f"{folder}\\" for folder in deleted))]
    aws = (PACKER / "aws" / "generalise.ps1").read_text()
    assert "Clear-Agent" not in aws


def test_the_script_keeps_what_runs() -> None:
    seal = (PACKER / "guest" / "seal.psm1").read_text()
    body = seal.partition("\nfunction Clear-AgentFolder {")[2].partition("\n}\n")[0]
    assert "$_.StartsWith($folder + '\\', [System.StringComparison]::OrdinalIgnoreCase)" in body
    logs = seal.partition("\nfunction Clear-File {")[2].partition("\n}\n")[0]
    assert "Clear-Optional -What $file -Clear { Clear-Tree -Path $file -TimeoutSeconds 0 }" in logs


def test_a_leftover_that_stays_fails_the_seal(tmp_path: Path) -> None:
    machine = built(tmp_path, "aws")
    machine.files.write(r"C:\Windows\Temp\packer-held.exe", b"x")
    machine.services.create("held", r"C:\Windows\Temp\packer-held.exe", "held", MANUAL)
    machine.services.start("held")
    outcome = generalise(machine, cloud="aws")
    assert (outcome.exit_code, "packer-held.exe is denied: service held runs it" in outcome.output) == (1, True)
    assert machine.files.is_file(rf"{HOME}\bundle\seal.psm1"), "the engine's folder goes last"
    assert machine.registry.subkeys(LISTENERS)
    answers = machine.files.read(PANTHER)
    machine.services.stop("held")
    machine.registry.write(SYSPREP_STATUS, "GeneralizationState", Value("DWord", 4))
    assert generalise(machine, cloud="aws").exit_code == 0, "Windows is generalised already"
    assert machine.files.read(PANTHER) == answers


def test_a_machine_that_is_generalised_needs_no_agent(tmp_path: Path) -> None:
    """Sysprep may have disabled the cloud's agents, so that another try would wait for them and fail."""
    machine = built(tmp_path, "azure")
    machine.registry.write(IMAGE_STATE, "ImageState", Value("String", "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"))
    machine.services.stop("RdAgent")
    outcome = generalise(machine, cloud="azure")
    assert outcome.exit_code == 0, outcome.output
    assert machine.files.names(HOME) == ["manifest.json"]


def test_the_script_seals_in_the_models_order() -> None:
    _, _, seal = (PACKER / "guest" / "seal.psm1").read_text().partition("\nfunction Invoke-Seal {")
    order = [
        "Assert-ReadyToSeal", "-ne $script:Generalised", "& $Assert", "schtasks.exe",
        "StartComponentCleanup", "executeQueuedItems", "*unattend*.xml", "Clear-SysprepCall", "& $Generalise",
        "Wait-Until", "& $Finish", "Clear-File", "Clear-EventRecord", "Get-Leftover", "Get-Leftover", "if ($Trim)",
        "Clear-WinRmListener",
    ]  # fmt: skip
    assert re.findall("|".join(map(re.escape, order)), seal.partition("\n}\n")[0]) == order
    for cloud, judged in (
        ("aws", ["Exists($launch)"]),
        ("azure", ["Exists($answers)", "'RdAgent'", f"'{GUEST_AGENT}'"]),
    ):
        script = (PACKER / cloud / "generalise.ps1").read_text()
        refusals, found, sysprep = script.partition("-Assert {")[2].partition("} -Generalise {")
        assert found
        assert "'sysprep', '--block'" not in script, "EC2Launch no longer needs it, and may come to refuse it"
        assert [(word in refusals, word in sysprep) for word in judged] == [(True, False)] * len(judged)


def test_what_sealing_deletes_is_the_same_in_script_model_and_catalogue() -> None:
    script = (PACKER / "guest" / "seal.psm1").read_text()
    files = re.findall(r"@\('(C:[^']+)', '([^']+)'\)", script)
    below = re.findall(r"""@\("\$profilePath\\([^"]+)", '([^']+)'\)""", script)
    assert "GetDirectories('C:\\Windows', '{}')".format(CHECK_HOME.rpartition("\\")[2]) in script
    assert (tuple(files), tuple(below)) == (LEFTOVERS, PROFILE_LEFTOVERS)
    profiles = "[System.IO.Directory]::GetDirectories('C:\\Users') + 'C:\\Windows\\System32\\config\\systemprofile'"
    assert f"function Get-ProfileFolder {{ [CmdletBinding()] param(); {profiles} }}" in script
    answers = script.partition("# Answer files of the base image")[2].partition("\n        }\n")[0]
    assert tuple(one.rstrip("\\") for one in re.findall(r"'(C:[^']*)'", answers)) == ANSWER_FOLDERS
    assert f"'{ANSWERS}'" in answers
    assert f"foreach ($folder in $temporary + '{EMPTIED[0]}' + '{EMPTIED[1]}')" in script
    assert f'"$one\\{PROFILE_EMPTIED}"' in script
    assert f"'\\A{BUILDER_TASK}\\z'" in script
    accounts = (rf"{USERS}\*", SYSTEM_PROFILE)
    deleted = [
        *("\\".join(pair) for pair in files),
        *(f"{one}\\{folder}\\{name}" for one in accounts for folder, name in below),
        *(rf"{folder}\*" for folder in (*EMPTIED, *(rf"{one}\{PROFILE_EMPTIED}" for one in accounts))),
        *(rf"{folder}\{ANSWERS}" for folder in ANSWER_FOLDERS),
        HOME,
    ]
    listed = table("layout")["deleted_by_sealing"]
    assert [path for path in deleted if not any(lies_at(path, pattern) for pattern in listed)] == []
    assert set(listed) <= set(deleted)


# ---- what the plan made outlives it


def test_what_sealing_takes_is_named(bench: Bench) -> None:
    machine = bench.machine
    folder, file = rf"{HOME}\k", r"C:\Windows\Temp\packer-tool.exe"
    machine.files.make_folder(folder)
    machine.files.write(file, b"x")
    machine.files.make_folder(CLOUDBASE)
    machine.files.write(CLOUDBASE + r"\service.exe", b"x")
    machine.services.create("cloudbase-init", f'"{CLOUDBASE}\\service.exe"', "Cloud Initialization", MANUAL)
    nothing = dict.fromkeys(("display_name", "state", "depends_on", "recovery"))
    lost: dict[str, tuple[dict[str, Any], str]] = {
        "directory": ({"path": folder}, f"there is no folder {folder}"),
        "file": ({"path": file, "sha256": sha(b"x"), "source": bench.text("x", b"x"), "artifact": None}, "no file"),
        "path": ({"entry": folder}, f"{folder} is gone"),
        "defender": ({"process": file}, f"{file} is gone"),
        "service": ({"name": "tool", "command": file, "start": "manual", **nothing}, f"{file} is gone"),
        "acl": ({"path": folder, "entries": [{"sid": "S-1-5-18", "rights": "full"}]}, f"there is no {folder}"),
    }
    kept = [bench.folder(r"C:\k"), bench.value("a")]
    # Its mark is in the engine's folder, which sealing deletes.
    run = {"arguments": [], "good_exit_codes": [0], "timeout_s": 60}
    kept.append(("script", {"name": "a.ps1", "source": bench.text("a.ps1", b"1"), "sha256": sha(b"1"), **run}))
    bench.bundle({"phase-1": [*kept, *((kind, fields) for kind, (fields, _) in lost.items())]})
    bench.done("phase-1")
    plan = machine.files.read(rf"{HOME}\bundle\plan.json")
    assert find_sealing_losses(machine, plan) == []
    assert generalise(machine, cloud="aws").exit_code == 0
    faults = find_sealing_losses(machine, plan)
    assert [fault.split(":")[0] for fault in faults] == [f"sealing undid phase-1-step/{kind}" for kind in lost]
    assert [reason in fault for fault, (_, reason) in zip(faults, lost.values(), strict=True)] == [True] * len(lost)
