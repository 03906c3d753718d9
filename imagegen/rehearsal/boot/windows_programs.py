"""Programs of Windows in the forms in which first boots and user data call them. Other forms are refused."""

from __future__ import annotations

import ntpath
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.machine.access import EVERYONE, NOTHING_WRITTEN, USERS, AccessEntry
from imagegen.rehearsal.machine.access import write as write_access
from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL
from imagegen.rehearsal.machine.time_zone import write_time_zone
from imagegen.rehearsal.machine.triggers import NETWORK_OFF, NETWORK_ON, write_triggers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.boot.model import Process, Program
    from imagegen.rehearsal.machine.triggers import Trigger
    from imagegen.rehearsal.machine.windows import Machine

# Start type, and whether the start is delayed.
_SC_STARTS = {
    "auto": (AUTOMATIC, 0),
    "delayed-auto": (AUTOMATIC, 1),
    "demand": (MANUAL, 0),
    "disabled": (DISABLED, 0),
}
_SC_TRIGGERS: Mapping[str, Sequence[Trigger]] = {
    "delete": (),
    "start/networkon stop/networkoff": (NETWORK_ON, NETWORK_OFF),
}
_NET_FAILED = 2
# PLA_E_DCS_NOT_FOUND
_NO_TRACE = 0x80300002
_NO_FILE = 2
_GROUPS = {"users": USERS, "everyone": EVERYONE}
_GRANT = re.compile(r"(?i)(?P<who>[^:]+):(?P<flags>(?:\(OI\)\(CI\))?)\(?(?P<rights>F|M|RX|R|W)\)?")
_RIGHTS = {"F": "FullControl", "M": "Modify", "RX": "ReadAndExecute", "R": "Read", "W": "Write"}


def refused(process: Process) -> UnknownCommandError:
    """The refusal of a known program with unknown arguments."""
    name = ntpath.basename(process.arguments[0])
    return UnknownCommandError(f"the rehearsal does not know what '{' '.join((name, *process.arguments[1:]))}' does")


def error_code(refusal: RefusedByWindows) -> int:
    """The number of Windows' error, which the model's messages end with."""
    found = re.search(r"\(error ([0-9]+)\)", str(refusal))
    return int(found[1]) if found else 1


def _set_start(machine: Machine, name: str, start: tuple[int, int]) -> None:
    machine.services.configure(name, "Start", Value("DWord", start[0]))
    machine.services.configure(name, "DelayedAutostart", Value("DWord", start[1]))


def run_sc(process: Process) -> Ended:
    """sc config NAME start= TYPE, sc start NAME, sc stop NAME, sc triggerinfo NAME with its triggers."""
    words = [word.lower() for word in process.arguments[1:]]
    services = process.machine.services
    try:
        if len(words) == 4 and (words[0], words[2]) == ("config", "start=") and words[3] in _SC_STARTS:
            _set_start(process.machine, words[1], _SC_STARTS[words[3]])
            return Ended(0, "[SC] ChangeServiceConfig SUCCESS\r\n")
        if len(words) == 2 and words[0] in ("start", "stop"):
            (services.start if words[0] == "start" else services.stop)(words[1])
            return Ended(0, f"SERVICE_NAME: {words[1]}\r\n")
        if words[:1] == ["triggerinfo"] and (triggers := _SC_TRIGGERS.get(" ".join(words[2:]))) is not None:
            write_triggers(process.machine, words[1], triggers)
            return Ended(0, "[SC] ChangeServiceConfig2 SUCCESS\r\n")
    except RefusedByWindows as refusal:
        return Ended(error_code(refusal), f"[SC] {words[0]} FAILED {error_code(refusal)}: {refusal}\r\n")
    raise refused(process)


def run_net(process: Process) -> Ended:
    """net start NAME, net stop NAME, and net user NAME with options."""
    words = list(process.arguments[1:])
    verb = words[0].lower() if words else ""
    services = process.machine.services
    try:
        if verb in ("start", "stop") and len(words) == 2:
            (services.start if verb == "start" else services.stop)(words[1])
        elif verb == "user" and len(words) > 2:
            _change_user(process, words[1], words[2:])
        else:
            raise refused(process)
    except RefusedByWindows as refusal:
        return Ended(_NET_FAILED, f"{refusal}\r\n")
    return Ended(0, "The command completed successfully.\r\n")


def _change_user(process: Process, name: str, options: Sequence[str]) -> None:
    user = process.machine.accounts.need_user(name)
    for option in map(str.lower, options):
        if option in ("/active:yes", "/active:no"):
            user.enabled = option.endswith("yes")
        elif option == "/expires:never":
            pass  # the account, not its password: the model's accounts never expire
        elif option == "/passwordreq:yes":
            pass  # every account of the model has a password
        elif option == "/logonpasswordchg:no":
            user.must_change_password = False
        else:
            raise refused(process)


def run_tzutil(process: Process) -> Ended:
    """tzutil /s ZONE."""
    words = process.arguments[1:]
    if len(words) != 2 or words[0].lower() != "/s":
        raise refused(process)
    try:
        write_time_zone(process.machine.registry, words[1])
    except RefusedByWindows as refusal:
        return Ended(1, f"{refusal}\r\n")
    return Ended(0)


def run_hostname(process: Process) -> Ended:
    if len(process.arguments) > 1:
        raise refused(process)
    return Ended(0, f"{process.machine.host_name}\r\n")


def run_logman(process: Process) -> Ended:
    """logman [-ets] stop|delete NAME. The model has no traces: on a new node nothing was traced yet."""
    words = [word for word in process.arguments[1:] if word.lower() != "-ets"]
    if len(words) != 2 or words[0].lower() not in ("stop", "delete"):
        raise refused(process)
    return Ended(_NO_TRACE, "Data Collector Set was not found.\r\n")


def run_icacls(process: Process) -> Ended:
    """icacls PATH /grant WHO:RIGHTS, with a well-known group and one of the simple rights."""
    words = process.arguments[1:]
    given = _GRANT.fullmatch(words[2]) if len(words) == 3 and words[1].lower() == "/grant" else None
    sid = _GROUPS.get(given["who"].lower(), given["who"].removeprefix("*")) if given else ""
    if given is None or sid not in _GROUPS.values():
        raise refused(process)
    files, path = process.machine.files, full_path(process.folder, words[0])
    if not files.exists(path):
        return Ended(_NO_FILE, f"{words[0]}: The system cannot find the file specified.\r\n")
    own = files.access_lists.get(fold(path), NOTHING_WRITTEN)
    entry = AccessEntry(sid, _RIGHTS[given["rights"].upper()], inherit="(oi)(ci)" in given["flags"].lower())
    write_access(files, path, (*own.entries, entry), protected=own.protected)
    return Ended(0, f"processed file: {words[0]}\r\n")


WINDOWS_PROGRAMS: Mapping[str, Program] = {
    "sc.exe": run_sc,
    "tzutil.exe": run_tzutil,
    "net.exe": run_net,
    "hostname.exe": run_hostname,
    "logman.exe": run_logman,
    "icacls.exe": run_icacls,
}
