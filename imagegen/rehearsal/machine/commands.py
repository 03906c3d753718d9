"""Programs of Windows that show and change settings, in the forms in which steps run them. No other form is known."""

from __future__ import annotations

import ntpath
import re
import uuid
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine import optional_features
from imagegen.rehearsal.machine.credential_plugins import run_register_script
from imagegen.rehearsal.machine.docker_engine import make_network, read_docker_version
from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.ports import PROTOCOLS, PortRange
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.machine.ssh_server import run_add_script
from imagegen.rehearsal.machine.time_zone import read_time_zone, write_time_zone
from imagegen.rehearsal.machine.triggers import START, read_triggers, write_triggers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine.windows import Machine

    # Gets the values of the form's groups, and returns the program's output, with its exit code unless that is 0.
    Act = Callable[[Machine, Mapping[str, str]], str | tuple[int, str]]

_SYSTEM32: Final = r"C:\Windows\System32"
# The sources of events, by GUID.
_PUBLISHERS: Final = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WINEVT\Publishers"
# The sources of known manifests. AgentBaker's collect-windows-logs.ps1 looks for these names.
_MANIFESTS: Final = {
    "ccgevents.man": "Microsoft-Windows-Containers-CCG",
    "ccgakvpluginevents.man": "Microsoft-AKSGMSAPlugin",
    "openssh-events.man": "OpenSSH",
}
POWER_PLANS: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes"
BALANCED: Final = "381b4222-f694-41f0-9685-ff5bb260df2e"
_PLANS: Final = {
    BALANCED: "Balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "High performance",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "Power saver",
}


def run_program(machine: Machine, program: str, arguments: str) -> tuple[int, str]:
    """The exit code and the output."""
    if not machine.files.is_file(program):
        raise RefusedByWindows(f"cannot find {program} (error 2)")
    given = " ".join(words(arguments))
    for form, act in _FORMS.get(fold(program), ()):
        if found := re.fullmatch(form, given, re.IGNORECASE):
            try:
                if script := found.groupdict().get("script"):
                    check_script(machine, script)
                ended = act(machine, found.groupdict())
                return (0, ended) if isinstance(ended, str) else ended
            except RefusedByWindows as refusal:
                return 1, f"{refusal}\r\n"
    raise RefusedByWindows(f"the rehearsal does not know what '{program} {arguments}' does")


def _show_zone(machine: Machine, _given: Mapping[str, str]) -> str:
    return read_time_zone(machine.registry)


def _set_zone(machine: Machine, given: Mapping[str, str]) -> str:
    write_time_zone(machine.registry, given["zone"])
    return ""


def read_power_plan(machine: Machine) -> str:
    """The GUID of the active plan."""
    return (machine.registry.text(POWER_PLANS, "ActivePowerScheme") or "").lower()


def _show_plan(machine: Machine, _given: Mapping[str, str]) -> str:
    plan = read_power_plan(machine)
    return f"Power Scheme GUID: {plan}  ({_PLANS.get(plan, '')})\r\n"


def _set_plan(machine: Machine, given: Mapping[str, str]) -> str:
    if given["plan"].lower() not in _PLANS:
        raise RefusedByWindows("The power scheme, subgroup or setting specified does not exist.")
    machine.registry.write(POWER_PLANS, "ActivePowerScheme", Value("String", given["plan"].lower()))
    return ""


def _show_dynamic(machine: Machine, given: Mapping[str, str]) -> str:
    ports = machine.ports.dynamic(given["protocol"].lower())
    return (
        f"\r\nProtocol {given['protocol']} Dynamic Port Range\r\n---------------------------------\r\n"
        f"Start Port      : {ports.start}\r\nNumber of Ports : {ports.count}\r\n\r\n"
    )


def _set_dynamic(machine: Machine, given: Mapping[str, str]) -> str:
    machine.ports.set_dynamic(given["protocol"].lower(), PortRange(int(given["start"]), int(given["count"])))
    return "Ok.\r\n\r\n"


def _show_excluded(machine: Machine, given: Mapping[str, str]) -> str:
    rows = [f"{one.start:>10}  {one.end:>10}     *\r\n" for one in machine.ports.excluded(given["protocol"].lower())]
    return (
        f"\r\nProtocol {given['protocol']} Port Exclusion Ranges\r\n\r\n"
        f"Start Port    End Port      \r\n----------    --------      \r\n{''.join(rows)}\r\n"
        "* - Administered port exclusions.\r\n\r\n"
    )


def _exclude(machine: Machine, given: Mapping[str, str]) -> str:
    machine.ports.exclude(given["protocol"].lower(), PortRange(int(given["start"]), int(given["count"])))
    return "Ok.\r\n\r\n"


def _show_triggers(machine: Machine, given: Mapping[str, str]) -> str:
    triggers = read_triggers(machine, given["service"])
    if not triggers:
        return f"The service {given['service']} has not registered for any start or stop triggers.\r\n"
    lines = [
        f"        {'START' if one.action == START else 'STOP'} SERVICE\r\n          : {one.event_id}\r\n"
        for one in triggers
    ]
    return f"[SC] QueryServiceConfig2 SUCCESS\r\n\r\nSERVICE_NAME: {given['service']}\r\n\r\n{''.join(lines)}"


def _delete_triggers(machine: Machine, given: Mapping[str, str]) -> str:
    write_triggers(machine, given["service"], ())
    return "[SC] ChangeServiceConfig2 SUCCESS\r\n"


def list_publishers(machine: Machine) -> list[str]:
    """The names of the sources of events."""
    registry = machine.registry
    return sorted(registry.text(rf"{_PUBLISHERS}\{key}", "") or "" for key in registry.subkeys(_PUBLISHERS))


def _list_publishers(machine: Machine, _given: Mapping[str, str]) -> str:
    return "".join(f"{name}\r\n" for name in list_publishers(machine))


def _install_manifest(machine: Machine, given: Mapping[str, str]) -> str:
    """Add the source of events of a manifest that is known."""
    path = given["path"]
    if not machine.files.is_file(path):
        raise RefusedByWindows(f"Failed to open file {path}. The system cannot find the file specified.")
    name, program = ntpath.basename(path).lower(), given.get("program")
    if program and not machine.files.is_file(program):
        raise RefusedByWindows(f"the events of {name} have no texts: there is no {program}")
    if name not in _MANIFESTS or not machine.files.read(path).startswith(b"a stand-in for "):
        raise UnknownCommandError(f"the rehearsal does not know what {path} holds")
    key = rf"{_PUBLISHERS}\{{{uuid.uuid5(uuid.NAMESPACE_DNS, name)}}}"
    machine.registry.make_key(key)
    machine.registry.write(key, "", Value("String", _MANIFESTS[name]))
    return ""


def _register_plugin(machine: Machine, given: Mapping[str, str]) -> str:
    return run_register_script(machine, given["script"], show=bool(given["show"]))


def _add_ssh_server(machine: Machine, given: Mapping[str, str]) -> str:
    return run_add_script(machine, given["script"], show=bool(given["show"]))


def _stop(machine: Machine, given: Mapping[str, str]) -> str:
    machine.services.stop(given["service"])
    return f"The {given['service']} service was stopped successfully.\r\n"


def _show_state_and_version(machine: Machine, given: Mapping[str, str]) -> str:
    """The state of a service, and the version of its program. cmd.exe continues after errors."""
    name, program = given["service"], given["program"]
    if not machine.services.exists(name):
        state = "[SC] EnumQueryServicesStatus:OpenService FAILED 1060:\r\n"
    else:
        number, word = (4, "RUNNING") if machine.services.is_running(name) else (1, "STOPPED")
        state = f"SERVICE_NAME: {name}\r\n        TYPE : 10  WIN32_OWN_PROCESS\r\n        STATE : {number}  {word}\r\n"
    if not machine.files.is_file(program):
        return f"'\"{program}\"' is not recognized as an internal or external command\r\n{state}"
    return f"{state}Docker version {read_docker_version(machine, program)}, build 1234567\r\n"


def _need_network(machine: Machine, given: Mapping[str, str]) -> str:
    if not machine.files.is_file(given["program"]):
        raise RefusedByWindows(f"'{given['program']}' is not recognized as an internal or external command")
    if given["network"] not in machine.hns.networks:
        make_network(machine, given["network"])
    return ""


def _keep_routes(machine: Machine, given: Mapping[str, str]) -> str:
    """The adapter of the model keeps its routes."""
    if not machine.files.is_file(given["route"]):
        raise RefusedByWindows(f"'{given['route']}' is not recognized as an internal or external command")
    return ""


_PROTOCOL: Final = rf"protocol=(?P<protocol>{'|'.join(PROTOCOLS)})"
_PORTS: Final = r"startport=(?P<start>[0-9]{1,5}) numberofports=(?P<count>[0-9]{1,5}) store=persistent"
_GUID: Final = r"(?P<plan>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_SCRIPT: Final = r"-NoProfile -NonInteractive (?:-ExecutionPolicy Bypass )?-File (?P<script>[^ ]+\\{})(?P<show> -Show)?"
_SERVICE: Final = r"(?P<service>[a-z0-9-]+)"
_BY_NAME: Mapping[str, tuple[tuple[str, Act], ...]] = {
    "dism.exe": optional_features.FORMS,
    "tzutil.exe": ((r"/g", _show_zone), (r"/s (?P<zone>.+)", _set_zone)),
    "powercfg.exe": ((r"/getactivescheme", _show_plan), (rf"/setactive {_GUID}", _set_plan)),
    "netsh.exe": (
        (rf"int ipv4 show dynamicportrange {_PROTOCOL}", _show_dynamic),
        (rf"int ipv4 set dynamicportrange {_PROTOCOL} {_PORTS}", _set_dynamic),
        (rf"int ipv4 show excludedportrange {_PROTOCOL} store=persistent", _show_excluded),
        (rf"int ipv4 add excludedportrange {_PROTOCOL} {_PORTS}", _exclude),
    ),
    "wevtutil.exe": (
        (r"ep", _list_publishers),
        (r"im (?P<path>[^ ]+)", _install_manifest),
        (r"im (?P<path>.+) /rf:(?P<program>.+) /mf:(?P=program)", _install_manifest),
    ),
    "cmd.exe": (
        (rf"/d /c net\.exe stop {_SERVICE} /y", _stop),
        (
            rf"/d /c sc\.exe query {_SERVICE} & (?P<program>\S.*\\dockerd\.exe) --version & exit 0",
            _show_state_and_version,
        ),
        (
            r"/d /s /c (?P<program>\S.*\\docker\.exe) network inspect (?P<network>[a-z]+) \|\| "
            r"(?P=program) network create -d nat (?P=network)",
            _need_network,
        ),
        (
            r"/d /c for %a in \([0-9. ]+\) do \((?P<route>\S+\\route\.exe) -4 print %a \| \S+\\find\.exe %a "
            r"\|\| (?P=route) add %a mask 255\.255\.255\.255 0\.0\.0\.0\)",
            _keep_routes,
        ),
    ),
    "sc.exe": (
        (rf"qtriggerinfo {_SERVICE}", _show_triggers),
        (rf"triggerinfo {_SERVICE} delete", _delete_triggers),
    ),
}
_FORMS: Mapping[str, tuple[tuple[str, Act], ...]] = {
    **{fold(rf"{_SYSTEM32}\{name}"): forms for name, forms in _BY_NAME.items()},
    fold(rf"{_SYSTEM32}\WindowsPowerShell\v1.0\powershell.exe"): (
        (_SCRIPT.format(r"register-plugin\.ps1"), _register_plugin),
        (_SCRIPT.format(r"add-ssh-server\.ps1"), _add_ssh_server),
    ),
}
