"""Finds and starts programs on the model machine, as Windows does: by path, or in the current folder and on PATH."""

from __future__ import annotations

import dataclasses
import ntpath
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.windows import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.rehearsal.boot.model import Process, Program
    from imagegen.rehearsal.machine.windows import Machine

BATCH_FILES = (".bat", ".cmd")
# What Windows sets for every process. The registry's own variables come on top.
_SYSTEM_VARIABLES = {
    "ALLUSERSPROFILE": r"C:\ProgramData",
    "CommonProgramFiles": r"C:\Program Files\Common Files",
    "ComSpec": r"C:\Windows\system32\cmd.exe",
    "OS": "Windows_NT",
    "PATHEXT": ".COM;.EXE;.BAT;.CMD;.VBS;.VBE;.JS;.JSE;.WSF;.WSH;.MSC",
    "ProgramData": r"C:\ProgramData",
    "ProgramFiles": r"C:\Program Files",
    "SystemDrive": "C:",
    "SystemRoot": r"C:\Windows",
    "TEMP": r"C:\Windows\Temp",
    "TMP": r"C:\Windows\Temp",
    "USERPROFILE": r"C:\Windows\system32\config\systemprofile",
    "windir": r"C:\Windows",
}
_OWN_FOLDER = r"C:\Windows"


class NoSuchProgramError(Exception):
    """Windows finds no program of this name."""


class Variables:
    """The environment of a process: names are compared without case."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values: dict[str, tuple[str, str]] = {}
        for name, value in values.items():
            self.set(name, value)

    def get(self, name: str) -> str | None:
        found = self._values.get(name.upper())
        return found[1] if found else None

    def set(self, name: str, value: str) -> None:
        """Set a variable. An empty value removes it."""
        if value:
            self._values[name.upper()] = (name, value)
        else:
            self._values.pop(name.upper(), None)

    def all(self) -> dict[str, str]:
        return dict(self._values.values())


def variables_of(process: Process) -> Variables:
    """The machine's variables, and over them those that the process was given."""
    machine = process.machine
    found = Variables({**_SYSTEM_VARIABLES, "COMPUTERNAME": machine.host_name[:15].upper()})
    for name, value in machine.registry.values(ENVIRONMENT).items():
        text = str(value.data)
        found.set(name, expand(text, found) if value.type == "ExpandString" else text)
    for name, text in process.environ.items():
        found.set(name, text)
    return found


def expand(text: str, variables: Variables) -> str:
    """Replace %NAME% as the registry does: an unknown name stays."""
    return re.sub(r"%([^%]+)%", lambda match: variables.get(match[1]) or match[0], text)


def full_path(folder: str, path: str) -> str:
    """The absolute path of a path that a program is given in this folder."""
    return ntpath.normpath(ntpath.join(folder, path))


def split_words(line: str) -> list[str]:
    r"""The arguments of a command line. A quoted part may hold spaces; \" is a quote."""
    words = re.findall(r'(?:\\"|"(?:\\"|[^"])*"?|[^\s"])+', line)
    return [re.sub(r'\\"|"', lambda match: '"' if len(match[0]) > 1 else "", word) for word in words]


def is_file(machine: Machine, path: str) -> bool:
    """Whether there is such a file. A path that Windows cannot have is none."""
    try:
        return machine.files.is_file(path)
    except RefusedByWindows:
        return False


def find_program(process: Process, name: str) -> str | None:
    """The file that a process starts by this name."""
    found = _candidates(process.folder, name, variables_of(process))
    return next((path for path in found if is_file(process.machine, path)), None)


class Programs:
    """The programs whose effect is known, by the name of their file in lower case."""

    def __init__(self, table: Mapping[str, Program], batch: Program) -> None:
        self._table = {name.lower(): program for name, program in table.items()}
        self._batch = batch

    def start(self, process: Process) -> Ended:
        """Start the program that the first argument names."""
        path = self._find(process, process.arguments[0])
        started = dataclasses.replace(process, arguments=(path, *process.arguments[1:]))
        base = ntpath.basename(path).lower()
        if base.endswith(BATCH_FILES):
            return self._batch(started)
        if base not in self._table:
            raise UnknownCommandError(f"the rehearsal does not know what {path} does")
        return self._table[base](started)

    def _find(self, process: Process, name: str) -> str:
        if path := find_program(process, name):
            return path
        # A program of the image that is not there is missing in reality too. The model's Windows, however, has only the
        # files that something needs.
        bare, is_path = ntpath.basename(name).lower(), ntpath.basename(name) != name
        known = bare in self._table or f"{bare}.exe" in self._table
        windows_own = full_path(process.folder, name).lower().startswith(_OWN_FOLDER.lower() + "\\")
        if not (known or (is_path and not windows_own)):
            raise UnknownCommandError(f"the rehearsal does not know the command '{name}'")
        raise NoSuchProgramError(name)


def _candidates(folder: str, name: str, variables: Variables) -> Iterator[str]:
    """The paths under which Windows looks for a program, in order."""
    extensions = [part.lower() for part in (variables.get("PATHEXT") or "").split(";") if part]
    endings = ["", *extensions] if ntpath.splitext(name)[1] else extensions
    if ntpath.basename(name) != name:
        places = [full_path(folder, name)]
    else:
        on_path = [entry.strip().strip('"') for entry in (variables.get("Path") or "").split(";")]
        places = [full_path(place, name) for place in (folder, *filter(None, on_path))]
    for place in places:
        yield from (place + ending for ending in endings)
