"""Does what rotate-logs.ps1 does: copies logs that are too large, empties them, and keeps a number of copies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.windows import Machine

_LINE: Final = re.compile(r"[1-9][0-9]{0,17} [1-9][0-9]{0,8} \S")


def rotate_logs(machine: Machine, arguments: Sequence[str]) -> int:
    """The exit code. `arguments` are -List and the path of the list, beside which the failures of a run are written."""
    if len(arguments) != 2 or arguments[0].lower() != "-list":
        return 1
    failures = []
    try:
        for line in machine.files.read(arguments[1]).decode().splitlines():
            if line and (reason := _rotate(machine, line)):
                failures.append(f"{line}: {reason}")
    except RefusedByWindows as refusal:
        failures.append(str(refusal))
    file = arguments[1] + ".failed"
    if failures:
        machine.files.write(file, "".join(f"{failure}\r\n" for failure in failures).encode())
    elif machine.files.is_file(file):
        machine.files.remove(file)
    return int(bool(failures))


def _rotate(machine: Machine, line: str) -> str:
    """Why the log of this line is not as it must be, or an empty string. A log that does not exist yet is."""
    if not _LINE.match(line):
        return "the line must have a size, a number and a path, with both numbers above 0"
    size, keep, path = line.split(" ", 2)
    try:
        _limit(machine, path, int(size), int(keep))
    except (RefusedByWindows, ValueError) as error:
        return str(error)
    return ""


def _limit(machine: Machine, path: str, size: int, keep: int) -> None:
    files = machine.files
    data = files.read(path) if files.is_file(path) else b""
    if len(data) <= size:
        return
    copy = f"{path}.new"
    try:
        files.write(copy, data[-2 * size :])
        free = next((number for number in range(1, keep) if not files.is_file(f"{path}.{number}")), keep)
        if files.is_file(f"{path}.{free}"):
            files.remove(f"{path}.{free}")
        for number in range(free, 1, -1):
            files.move(f"{path}.{number - 1}", f"{path}.{number}")
        files.move(copy, f"{path}.1")
        copy = f"{path}.1"
        # Its program keeps the file open and appends to it: it is emptied and never replaced.
        files.write(path, b"")
    except RefusedByWindows:
        if files.is_file(copy):
            files.remove(copy)
        raise
