"""Does what a cloud's generalise script does: checks, cleans up, runs sysprep, and deletes what the build left."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds import guest_agents
from imagegen.rehearsal.machine.bundle import CHECK_HOME, HOME, TEMP, UNPACKED
from imagegen.rehearsal.machine.engine import Outcome
from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.report import REPORT
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.machine.stock import (
    COMPILER,
    GENERALISED_BEFORE,
    IMAGE_STATE,
    LISTENERS,
    SYSPREP_STATUS,
)
from imagegen.rehearsal.machine.windows import SYSTEM32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imagegen.rehearsal.machine.agents import Agents
    from imagegen.rehearsal.machine.windows import Machine

# Files by folder and pattern. A test compares them, and the engine's folder, with seal.psm1 and the catalogue.
LEFTOVERS = (
    (TEMP, "imagegen-*"),
    (TEMP, "packer-*"),
    (TEMP, "script-*.ps1"),
    (TEMP, "winrmcp-*"),
    (r"C:\ProgramData\ssh", "ssh_host_*"),
)
USERS = r"C:\Users"
SYSTEM_PROFILE = SYSTEM32 + r"\config\systemprofile"
# The same, below the folder of every account.
PROFILE_LEFTOVERS = (
    (r"AppData\Roaming\Microsoft\Windows\PowerShell\PSReadLine", "*_history.txt"),
    (r"AppData\Local\Temp", "winrmcp-*"),
)
CACHED_ANSWERS = r"C:\Windows\Panther\unattend.xml"
ANSWER_FILES = (CACHED_ANSWERS, r"C:\Windows\Panther\Unattend\unattend.xml", SYSTEM32 + r"\Sysprep\unattend.xml")
ANSWER_FOLDERS = (r"C:\Windows\Panther", r"C:\Windows\Panther\Unattend", SYSTEM32 + r"\Sysprep", "C:")
ANSWERS = "*unattend*.xml"
# Emptied, except files that a program has open.
EMPTIED = (TEMP, r"C:\Windows\Logs")
PROFILE_EMPTIED = r"AppData\Local\Temp"
# The one file in the engine's folder that stays.
RECORD = HOME + r"\manifest.json"
BUILDER_TASK = r"(packer-.+|imagegen-(add-ssh-server|updates))"
WINLOGON = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon"
WINRM = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Service"
SETUP_SCRIPTS = r"C:\Windows\Setup\Scripts"
SEALED = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"
# What sysprep calls: each value holds the path of a DLL and the name of a function in it.
SYSPREP_CALLS = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\SysPrepExternal\Generalize"


def generalise(machine: Machine, *, cloud: str) -> Outcome:
    """`cloud` is a provider's name."""
    agents = guest_agents(cloud)
    lines: list[str] = []
    try:
        _check_ready(machine)
        # After a try that failed later, the machine is generalised already, and its agents may be disabled.
        if machine.registry.text(IMAGE_STATE, "ImageState") != SEALED:
            agents.check(machine)
            _check_extensions(machine, agents)
            _delete_tasks(machine)
            lines += [_clean_component_store(machine), _compile_assemblies(machine)]
            _delete(machine, [path for folder in ANSWER_FOLDERS for path in _matching(machine, folder, ANSWERS)])
            _clear_sysprep_calls(machine)
            if agents.reset is not None:
                agents.reset(machine)
            _sysprep(machine, agents.answer_file)
        lines += _clear_agents(machine, agents)
        for folder in (*EMPTIED, *(rf"{one}\{PROFILE_EMPTIED}" for one in _profiles(machine))):
            lines += _empty(machine, agents, folder)
        machine.event_logs.clear()
        _delete(machine, list(_leftovers(machine)))
        if agents.trims:
            lines.append(_trim(machine))
        _clear_listeners(machine)
    except RefusedByWindows as refusal:
        return Outcome(1, "".join(f"{line}\n" for line in (*lines, f"failed: {refusal}")))
    return Outcome(0, "".join(f"{line}\n" for line in lines))


def _check_ready(machine: Machine) -> None:
    services = machine.services
    if not machine.files.is_file(UNPACKED + r"\seal.psm1"):
        raise RefusedByWindows(f"there is no {UNPACKED}\\seal.psm1")
    for module in ("seal.psm1", "common.psm1"):
        check_script(machine, rf"{UNPACKED}\{module}")
    machine.need_tool(r"Sysprep\sysprep.exe")
    if not machine.files.is_file(REPORT):
        raise RefusedByWindows("there is no report.json: the last phase has not finished")
    if machine.restart_pending():
        raise RefusedByWindows("Windows has a restart pending")
    if not services.exists("cloudbase-init") or services.start_type("cloudbase-init") != MANUAL:
        raise RefusedByWindows("service cloudbase-init must exist with start type manual")
    if services.is_running("cloudbase-init"):
        raise RefusedByWindows("service cloudbase-init is running, not Stopped")
    if (machine.registry.text(WINLOGON, "AutoAdminLogon") or "0") != "0":
        raise RefusedByWindows("AutoAdminLogon is on")
    if machine.registry.text(WINLOGON, "DefaultPassword"):
        raise RefusedByWindows("a DefaultPassword is set")
    for name in ("auth_basic", "allow_unencrypted"):
        if machine.registry.number(WINRM, name):
            raise RefusedByWindows(f"WinRM has {name} on")


def _check_extensions(machine: Machine, agents: Agents) -> None:
    """Refuse an agent that was installed as an extension. What an extension without a service left is deleted later."""
    for name in machine.services.names():
        program = machine.services.command(name).lstrip('"')
        if agents.extensions and program.lower().startswith(agents.extensions.lower() + "\\"):
            raise RefusedByWindows(f"an extension is installed: {program}")


def _delete_tasks(machine: Machine) -> None:
    for name in machine.tasks.names():
        if re.fullmatch(BUILDER_TASK, name, re.IGNORECASE):
            machine.tasks.unregister(name)


def _clean_component_store(machine: Machine) -> str:
    line = _run_tool(
        machine, SYSTEM32 + r"\dism.exe", "/Online /Cleanup-Image /StartComponentCleanup /NoRestart /Quiet"
    )
    machine.replaced_components = machine.replaced_components and "ended with 0" not in line
    return line


def _compile_assemblies(machine: Machine) -> str:
    line = _run_tool(machine, COMPILER, "executeQueuedItems /nologo /silent")
    machine.assemblies_queued = machine.assemblies_queued and "ended with 0" not in line
    return line


def _trim(machine: Machine) -> str:
    line = _run_tool(machine, SYSTEM32 + r"\defrag.exe", "C: /L")
    machine.volume.holds_deleted = machine.volume.holds_deleted and "ended with 0" not in line
    return line


def _run_tool(machine: Machine, program: str, arguments: str) -> str:
    """The line of the log. A tool that fails does not fail the seal."""
    is_there = machine.files.is_file(program)
    return f"{program} {arguments} {'ended with 0' if is_there else 'failed: cannot find the file'}"


def _clear_sysprep_calls(machine: Machine) -> None:
    """Remove the entries whose DLL does not exist."""
    for name, dll in _sysprep_calls(machine).items():
        if not machine.files.is_file(dll):
            machine.registry.remove_value(SYSPREP_CALLS, name)


def _sysprep_calls(machine: Machine) -> dict[str, str]:
    """The DLL of each entry."""
    return {name: str(value.data).partition(",")[0] for name, value in machine.registry.values(SYSPREP_CALLS).items()}


def _sysprep(machine: Machine, answer_file: str) -> None:
    """Keep the answer file for the first boot. Fails if the last generalisation of this Windows did not end, or where
    a DLL to call does not exist; what it did shows in the image's state, and not in its exit code."""
    absent = [dll for dll in _sysprep_calls(machine).values() if not machine.files.is_file(dll)]
    unfinished = machine.registry.number(SYSPREP_STATUS, "GeneralizationState") != GENERALISED_BEFORE
    if absent or unfinished:
        raise RefusedByWindows("the machine is not generalised after 600 s: its state is 'IMAGE_STATE_COMPLETE'")
    machine.hns.forget_all()
    machine.routes.clear()
    machine.files.write(CACHED_ANSWERS, machine.files.read(answer_file))
    machine.registry.write(IMAGE_STATE, "ImageState", Value("String", SEALED))


def _clear_agents(machine: Machine, agents: Agents) -> Iterator[str]:
    """Delete what the cloud's agents left, but no folder from which a service runs, and no file that one has open.
    A line of the log for each that stays."""
    for above, pattern in agents.left_folders:
        above = above.rstrip("\\")
        names = machine.files.names(above) if machine.files.is_folder(above) else []
        for folder in (f"{above}\\{name}" for name in names if fnmatch.fnmatchcase(name.lower(), pattern.lower())):
            running = [file for file in machine.services.programs_in_use() if file.startswith(fold(folder) + "\\")]
            if machine.files.is_folder(folder) and running:
                yield f"{folder} stays in the image, because {running[0]} runs"
            elif machine.files.is_folder(folder):
                yield from _clear_agent_folder(machine, agents, folder)
    if agents.logs:
        yield from _empty(machine, agents, agents.logs)
    if agents.state and machine.registry.has_key(agents.state):
        machine.registry.remove_key(agents.state)


def _empty(machine: Machine, agents: Agents, folder: str) -> Iterator[str]:
    """Delete the files in a folder, except open ones. A line of the log for each that stays."""
    in_use = machine.services.programs_in_use()
    for file in list(machine.files.below(folder)) if machine.files.is_folder(folder) else []:
        if _is_open(machine, agents, file) or fold(file) in in_use:
            yield f"{file} stays in the image, at least in part: another process has it open"
        else:
            _delete(machine, [file])


def _clear_agent_folder(machine: Machine, agents: Agents, folder: str) -> Iterator[str]:
    """Windows deletes what it can of a folder."""
    files = list(machine.files.below(folder))
    stay = [file for file in files if _is_open(machine, agents, file)]
    _delete(machine, [file for file in files if file not in stay] if stay else [folder])
    if stay:
        yield f"{folder} stays in the image, at least in part: another process has {stay[0]} open"


def _is_open(machine: Machine, agents: Agents, file: str) -> bool:
    return machine.services.is_running(agents.open_files.get(file, ""))


def _profiles(machine: Machine) -> list[str]:
    return [*(f"{USERS}\\{name}" for name in machine.files.names(USERS)), SYSTEM_PROFILE]


def _matching(machine: Machine, folder: str, pattern: str) -> Iterator[str]:
    """The files in a folder whose names match."""
    for name in machine.files.names(folder) if machine.files.is_folder(folder) else ():
        path = f"{folder}\\{name}"
        if fnmatch.fnmatchcase(name.lower(), pattern) and machine.files.is_file(path):
            yield path


def _leftovers(machine: Machine) -> Iterator[str]:
    """The leftovers, the content of the engine's folder last."""
    below = [(f"{one}\\{folder}", name) for one in _profiles(machine) for folder, name in PROFILE_LEFTOVERS]
    for folder, pattern in (*LEFTOVERS, *below):
        yield from _matching(machine, folder, pattern)
    if machine.files.is_folder(CHECK_HOME):
        yield CHECK_HOME
    if machine.files.is_folder(HOME):
        yield from (path for name in machine.files.names(HOME) if (path := f"{HOME}\\{name}").lower() != RECORD.lower())


def _delete(machine: Machine, paths: Iterable[str]) -> None:
    """Delete files, also read-only ones, and folders with their content. Fails for a program of a running service."""
    in_use = machine.services.programs_in_use()
    for path in paths:
        for file in [path] if machine.files.is_file(path) else list(machine.files.below(path)):
            if fold(file) in in_use:
                raise RefusedByWindows(f"access to {file} is denied: service {in_use[fold(file)][0]} runs it")
            machine.files.set_read_only(file, on=False)
        machine.files.remove(path)


def _clear_listeners(machine: Machine) -> None:
    """Remove the listeners, and list their certificates, which first boot deletes."""
    keys = [f"{LISTENERS}\\{name}" for name in machine.registry.subkeys(LISTENERS)]
    prints = [(machine.registry.text(key, "certThumbprint") or "").replace(" ", "") for key in keys]
    machine.files.make_folder(SETUP_SCRIPTS)
    lines = "".join(f"{text}\r\n" for text in prints if text)
    machine.files.write(f"{SETUP_SCRIPTS}\\certificates.txt", lines.encode())
    for key in keys:
        machine.registry.remove_key(key)
