"""Does what rotate-logs.ps1 does: copies logs that are too large, empties them, and keeps a number of copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.windows import Machine


def rotate_logs(machine: Machine, arguments: Sequence[str]) -> int:
    """The exit code. `arguments` are -List and the path of the list."""
    if len(arguments) != 2 or arguments[0].lower() != "-list":
        return 1
    try:
        lines = machine.files.read(arguments[1]).decode().splitlines()
    except RefusedByWindows:
        return 1
    failed = [line for line in lines if line and not _rotate(machine, line)]
    return int(bool(failed))


def _rotate(machine: Machine, line: str) -> bool:
    """Whether the log of this line is as it must be. A log that does not exist yet is."""
    files = machine.files
    try:
        size, keep, path = line.split(" ", 2)
        data = files.read(path) if files.is_file(path) else b""
        if len(data) <= int(size):
            return True
        free = next((number for number in range(1, int(keep)) if not files.exists(f"{path}.{number}")), int(keep))
        if files.exists(f"{path}.{free}"):
            files.remove(f"{path}.{free}")
        for number in range(free, 1, -1):
            files.move(f"{path}.{number - 1}", f"{path}.{number}")
        files.write(f"{path}.1", data[-2 * int(size) :])
        # Its program keeps the file open and appends to it: it is emptied and never replaced.
        files.write(path, b"")
    except (RefusedByWindows, ValueError):
        return False
    return True
