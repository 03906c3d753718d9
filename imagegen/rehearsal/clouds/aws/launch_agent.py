"""EC2Launch v2 at a machine's start: the tasks of its agent-config.yml, then the scripts in the user data.

It runs `<script>` and `<powershell>` of the user data after its own stages, whatever its configuration says. It skips
tasks of the frequency `once` if its file .run-once exists.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ConfigError
from imagegen.config.yaml import parse_yaml
from imagegen.rehearsal.boot.model import Ended, Process, UnknownCommandError
from imagegen.rehearsal.boot.windows_programs import refused
from imagegen.rehearsal.machine.answers import AnswerCommand, AnswerFile
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from imagegen.rehearsal.machine.windows import Machine

PROGRAM: Final = r"C:\Program Files\Amazon\EC2Launch\EC2Launch.exe"
DATA: Final = r"C:\ProgramData\Amazon\EC2Launch"
STATE: Final = rf"{DATA}\state"
RUN_ONCE: Final = rf"{STATE}\.run-once"
CONFIG: Final = rf"{DATA}\config\agent-config.yml"
ANSWER_FILE: Final = rf"{DATA}\sysprep\unattend.xml"
SCRIPTS: Final = r"C:\Windows\System32\config\systemprofile\AppData\Local\Temp\EC2Launch"

# Amazon's page about Windows Sysprep with EC2Launch v2 lists these settings and commands.
ANSWERS: Final = AnswerFile(
    settings={
        "generalize": {
            "Microsoft-Windows-PnpSysprep": {
                "PersistAllDeviceInstalls": "true",
                "DoNotCleanUpNonPresentDevices": "true",
            }
        },
        "specialize": {
            "Microsoft-Windows-Shell-Setup": {"ComputerName": "*", "CopyProfile": "true", "TimeZone": "UTC"},
            "Microsoft-Windows-TerminalServices-LocalSessionManager": {"fDenyTSConnections": "false"},
        },
        "oobeSystem": {
            "Microsoft-Windows-International-Core": {
                "InputLocale": "en-US",
                "SystemLocale": "en-US",
                "UILanguage": "en-US",
                "UserLocale": "en-US",
            },
            "Microsoft-Windows-Shell-Setup": {
                "OOBE/HideEULAPage": "true",
                "OOBE/HideWirelessSetupInOOBE": "true",
                "OOBE/ProtectYourPC": "3",
                "BluetoothTaskbarIconEnabled": "false",
                "TimeZone": "UTC",
                "RegisteredOrganization": "Amazon.com",
                "RegisteredOwner": "EC2",
            },
        },
    },
    commands=[
        AnswerCommand(path="net user Administrator /ACTIVE:YES /LOGONPASSWORDCHG:NO /EXPIRES:NEVER /PASSWORDREQ:YES"),
        AnswerCommand(path=f'"{PROGRAM}" internal randomize-password --username Administrator'),
    ],
)
_STAGES = ("boot", "preReady", "postReady")
# Tasks that change nothing that the model has: size of the disk, licence, search list of DNS, SSM agent.
_NO_EFFECT = frozenset({"extendRootPartition", "activateWindows", "setDnsSuffix", "startSsm"})
_SECTIONS = (("script", "cmd"), ("powershell", "ps1"))
_TASKS_IN_USER_DATA = re.compile(rb"(?m)^version:\s*1(\.[01])?\s*$")


def run_launch_program(process: Process) -> Ended:
    """EC2Launch.exe internal randomize-password --username NAME"""
    words = process.arguments[1:]
    if len(words) != 4 or tuple(words[:3]) != ("internal", "randomize-password", "--username"):
        raise refused(process)
    try:
        process.machine.accounts.need_user(words[3]).password = secrets.token_hex(16)
    except RefusedByWindows as refusal:
        return Ended(1, f"{refusal}\r\n")
    return Ended(0)


def run_launch_agent(machine: Machine, user_data: bytes, run: Callable[[Process], Ended]) -> list[str]:
    """What the service does after Windows Setup, at every start. Returns the tags of the scripts that ran."""
    if not machine.services.is_running("Amazon EC2Launch"):
        return []
    is_first = not machine.files.is_file(RUN_ONCE)
    for name, inputs in _tasks(machine):
        if name == "setAdminAccount":
            if is_first:
                _set_administrator(machine, inputs)
        elif name not in _NO_EFFECT:
            raise UnknownCommandError(f"the rehearsal does not know the task {name} in {CONFIG}")
    machine.files.make_folder(STATE)
    machine.files.write(RUN_ONCE, b"")
    if _TASKS_IN_USER_DATA.search(user_data):
        raise UnknownCommandError("the rehearsal does not know user data that is a list of tasks for EC2Launch")
    persists = re.search(rb"<persist>\s*true\s*</persist>", user_data, re.IGNORECASE) is not None
    return list(_run_sections(machine, user_data, run)) if is_first or persists else []


def _tasks(machine: Machine) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The tasks of the configuration with their inputs, stage by stage."""
    if not machine.files.is_file(CONFIG):
        return
    try:
        data = parse_yaml(machine.files.read(CONFIG), CONFIG).data
        stages = {str(one["stage"]): one["tasks"] for one in data["config"]}
        found = [(str(task["task"]), task.get("inputs") or {}) for name in _STAGES for task in stages.pop(name, [])]
    except (ConfigError, KeyError, TypeError, AttributeError) as error:
        raise UnknownCommandError(f"EC2Launch cannot read {CONFIG}: {error}") from error
    if stages:
        raise UnknownCommandError(f"the rehearsal does not know the stage {', '.join(stages)} in {CONFIG}")
    yield from found


def _set_administrator(machine: Machine, inputs: Mapping[str, object]) -> None:
    password = inputs.get("password")
    if not isinstance(password, dict) or password.get("type") != "random":
        raise UnknownCommandError(f"the rehearsal knows setAdminAccount in {CONFIG} only with a random password")
    user = machine.accounts.need_user(str(inputs.get("name", "Administrator")))
    user.password, user.enabled = secrets.token_hex(16), True


def _run_sections(machine: Machine, user_data: bytes, run: Callable[[Process], Ended]) -> Iterator[str]:
    for tag, extension in _SECTIONS:
        match = re.search(rf"<{tag}>(.*?)</{tag}>".encode(), user_data, re.DOTALL)
        if match is None:
            continue
        path = rf"{SCRIPTS}\UserScript.{extension}"
        machine.files.make_folder(SCRIPTS)
        machine.files.write(path, match[1].strip())
        run(Process(machine, (path,) if tag == "script" else ("powershell.exe", "-File", path)))
        machine.files.remove(path)
        yield tag
