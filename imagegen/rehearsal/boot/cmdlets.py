"""The cmdlets that scripts around a join call, with their effect on the model machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imagegen.rehearsal.machine.windows import Machine

_ENCODINGS = {"ascii": "utf-8", "default": "utf-8", "unicode": "utf-16", "utf8": "utf-8-sig"}
STARTS = {"automatic": AUTOMATIC, "manual": MANUAL, "disabled": DISABLED}
# What Windows does meanwhile, such as the restarts of a service, takes real time.
_LONGEST_SLEEP_S = 2 * 86400


@dataclasses.dataclass(frozen=True)
class Given:
    """What a cmdlet is called with: its parameters by lower-case name, and the lines from the pipe."""

    machine: Machine
    folder: str
    parameters: Mapping[str, str]
    lines: Sequence[str] = ()

    def text(self, *names: str) -> str:
        """The first of these parameters that is given."""
        found = next((self.parameters[name] for name in names if name in self.parameters), None)
        if found is None:
            raise RefusedByWindows(f"the parameter -{names[0]} is missing")
        return found

    def path(self) -> str:
        return full_path(self.folder, self.text("path", "literalpath", "filepath"))


@dataclasses.dataclass(frozen=True)
class Cmdlet:
    """A cmdlet: the parameters that take a value, first those that may stand without their name, and its switches."""

    run: Callable[[Given], list[str]]
    positional: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    writes_pipe: bool = True
    """Whether its output goes on through the pipe."""


def _write(given: Given) -> list[str]:
    return [given.text("object", "inputobject")] if given.parameters else list(given.lines)


def _new_item(given: Given) -> list[str]:
    files, path = given.machine.files, given.path()
    kind, force = given.parameters.get("itemtype", "file").lower(), "force" in given.parameters
    if kind == "directory":
        if files.exists(path) and not force:
            raise RefusedByWindows(f"An item with the specified name {path} already exists.")
        files.make_folder(path)
    elif kind == "file":
        if files.exists(path) and not force:
            raise RefusedByWindows(f"The file '{path}' already exists.")
        if force:
            files.make_folder(parent(path))
        files.write(path, given.parameters.get("value", "").encode())
    else:
        raise ValueError(f"the item type {kind}")
    return [path]


def _write_file(given: Given) -> list[str]:
    given.machine.files.write(given.path(), _content(given))
    return []


def _append_file(given: Given) -> list[str]:
    files, path = given.machine.files, given.path()
    files.write(path, (files.read(path) if files.is_file(path) else b"") + _content(given))
    return []


def _content(given: Given) -> bytes:
    lines = [given.text("value", "inputobject")] if {"value", "inputobject"} & set(given.parameters) else given.lines
    ending = "" if "nonewline" in given.parameters else "\r\n"
    return "".join(f"{line}{ending}" for line in lines).encode(
        _ENCODINGS[given.parameters.get("encoding", "ascii").lower()]
    )


def _out_file(given: Given) -> list[str]:
    # Without -Encoding, Out-File of Windows PowerShell writes UTF-16.
    given = dataclasses.replace(given, parameters={"encoding": "unicode", **given.parameters})
    return _append_file(given) if "append" in given.parameters else _write_file(given)


def _test_path(given: Given) -> list[str]:
    kind = given.parameters.get("pathtype", "any").lower()
    files, path = given.machine.files, given.path()
    tests = {"any": files.exists, "container": files.is_folder, "leaf": files.is_file}
    return [str(tests[kind](path))]


def _copy_item(given: Given) -> list[str]:
    machine, target = given.machine, full_path(given.folder, given.text("destination"))
    data = machine.files.read(given.path())
    if target.lower() in {path.lower() for path in machine.services.programs_in_use()}:
        raise RefusedByWindows(f"The process cannot access the file '{target}' because it is being used.")
    machine.files.write(target, data)
    return []


def _set_service(given: Given) -> list[str]:
    services, name = given.machine.services, given.text("name")
    if "startuptype" in given.parameters:
        start = STARTS[given.parameters["startuptype"].lower()]
        services.configure(name, "Start", Value("DWord", start))
        services.configure(name, "DelayedAutostart", Value("DWord", 0))
    if "status" in given.parameters:
        acts = {"running": services.start, "stopped": services.stop}
        acts[given.parameters["status"].lower()](name)
    return []


def _start_service(given: Given) -> list[str]:
    given.machine.services.start(given.text("name"))
    return []


def _stop_service(given: Given) -> list[str]:
    given.machine.services.stop(given.text("name"))
    return []


def _restart_service(given: Given) -> list[str]:
    return _stop_service(given) + _start_service(given)


def _sleep(given: Given) -> list[str]:
    seconds = float(given.text("seconds"))
    if seconds > _LONGEST_SLEEP_S:
        raise ValueError("a sleep of more than two days")
    given.machine.wait_until(lambda: False, seconds)
    return []


def _new_firewall_rule(given: Given) -> list[str]:
    directions = {"inbound": "in", "outbound": "out"}
    display_name = given.text("displayname")
    direction = directions[given.parameters.get("direction", "inbound").lower()]
    rule = Rule(
        name=given.parameters.get("name", display_name),
        display_name=display_name,
        direction=direction,
        action=given.parameters.get("action", "allow").lower(),
        protocol=given.parameters.get("protocol", "any").upper(),
        port=given.parameters.get("localport" if direction == "in" else "remoteport", "Any"),
        profile=given.parameters.get("profile", "Any"),
        enabled={"true": True, "false": False}[given.parameters.get("enabled", "true").lower()],
    )
    given.machine.firewall.add(rule)
    return []


_PATH, _ENCODING = ("path", "literalpath"), ("encoding",)
_RULE = ("name", "displayname", "direction", "action", "protocol", "localport", "remoteport", "profile", "enabled")
CMDLETS: Mapping[str, Cmdlet] = {
    "write-output": Cmdlet(_write, ("inputobject",)),
    "write-host": Cmdlet(_write, ("object",), ("foregroundcolor",), writes_pipe=False),
    "out-null": Cmdlet(lambda _: []),
    "new-item": Cmdlet(_new_item, ("path",), ("itemtype", "value"), ("force",)),
    "set-content": Cmdlet(_write_file, ("path", "value"), (*_PATH, *_ENCODING), ("force", "nonewline")),
    "add-content": Cmdlet(_append_file, ("path", "value"), (*_PATH, *_ENCODING), ("force", "nonewline")),
    "out-file": Cmdlet(_out_file, ("filepath", "encoding"), (*_PATH, "inputobject"), ("force", "append", "nonewline")),
    "copy-item": Cmdlet(_copy_item, ("path", "destination"), ("literalpath",), ("force",)),
    "test-path": Cmdlet(_test_path, ("path",), ("literalpath", "pathtype")),
    "set-service": Cmdlet(_set_service, ("name",), ("startuptype", "status")),
    "start-service": Cmdlet(_start_service, ("name",)),
    "stop-service": Cmdlet(_stop_service, ("name",), (), ("force",)),
    "restart-service": Cmdlet(_restart_service, ("name",), (), ("force",)),
    "start-sleep": Cmdlet(_sleep, ("seconds",)),
    "new-netfirewallrule": Cmdlet(_new_firewall_rule, (), _RULE),
}
