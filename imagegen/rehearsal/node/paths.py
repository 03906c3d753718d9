"""How a program of the model machine finds files: on the drive of its current folder, and on the search path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.windows import ENVIRONMENT

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.model import Process
    from imagegen.rehearsal.machine.windows import Machine

SERVICE = "kubelet"


def absolute(path: str, folder: str) -> str:
    """A path as Windows reads it in a current folder: without a drive letter it means the drive of that folder."""
    path = path.replace("/", "\\")
    if re.match(r"[A-Za-z]:\\", path):
        return path
    return folder[:2] + path if path.startswith("\\") else f"{folder.rstrip(chr(92))}\\{path}"


def find_program(process: Process, name: str) -> str | None:
    """The file of a program that is named with or without a folder and .exe."""
    file = name if name.lower().endswith(".exe") else f"{name}.exe"
    if "\\" in file or "/" in file:
        candidates = [absolute(file, process.folder)]
    else:
        candidates = [rf"{folder}\{file}" for folder in _search_path(process)]
    return next((path for path in candidates if process.machine.files.is_file(path)), None)


def _search_path(process: Process) -> list[str]:
    given = next((value for key, value in process.environ.items() if key.lower() == "path"), None)
    folders = [process.folder, *(given or _machine_path(process.machine)).split(";")]
    return [folder.rstrip("\\") for folder in folders if folder]


def _machine_path(machine: Machine) -> str:
    path = machine.registry.text(ENVIRONMENT, "Path") or ""
    return re.sub(r"(?i)%(systemroot|windir)%", lambda _: r"C:\Windows", path)
