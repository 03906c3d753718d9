"""Does what logs.ps1 does on the machine of a failed build: prints the ends of its logs as a zip."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.engine import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.windows import Machine

# The folder in the zip, the folder on the machine and a pattern. A test compares them, and the limits, with logs.ps1.
PLACES: Final = (
    ("imagegen", HOME, "*.log"),
    ("imagegen", HOME, "state.json"),
    ("cbs", r"C:\Windows\Logs\CBS", "CBS.log"),
    ("dism", r"C:\Windows\Logs\DISM", "dism.log"),
    ("panther", r"C:\Windows\Panther", "setup*.log"),
    ("sysprep", r"C:\Windows\System32\Sysprep\Panther", "setup*.log"),
    ("containerd", r"C:\var\log\containerd", "*.log"),
    ("kubelet", r"C:\var\log\kubelet", "*.log"),
    ("csi-proxy", r"C:\var\log\csi-proxy", "*.log"),
    ("cri-dockerd", r"C:\var\log\cri-dockerd", "*.log"),
    ("cloudbase-init", r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log", "*.log"),
)
FILE_LIMIT: Final = 524_288
TOTAL_LIMIT: Final = 4_000_000
LINE_LENGTH: Final = 900


def print_logs(machine: Machine) -> Outcome:
    """The model's files have no times and its Windows has no event logs: the order is that of the places."""
    buffer = io.BytesIO()
    left, notes = TOTAL_LIMIT, list[str]()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in _list_files(machine):
            if left < 2:
                notes.append(f"{path}: left out")
                continue
            # Even, as in the script: a log in UTF-16 is not cut within a character.
            data = machine.files.read(path)[-(min(left, FILE_LIMIT) // 2 * 2) :]
            archive.writestr(name, data)
            left -= len(data)
        archive.writestr("notes.txt", "\r\n".join(notes))
    data = buffer.getvalue()
    text = base64.b64encode(data).decode("ascii")
    parts = [text[at : at + LINE_LENGTH] for at in range(0, len(text), LINE_LENGTH)]
    said = (f"begin {len(data)} {hashlib.sha256(data).hexdigest()}", *parts, "end")
    return Outcome(0, "".join(f"imagegen-logs: {line}\r\n" for line in said))


def _list_files(machine: Machine) -> Iterator[tuple[str, str]]:
    """Names in the zip, and paths."""
    for above, folder, pattern in PLACES:
        for name in machine.files.names(folder) if machine.files.is_folder(folder) else ():
            path = rf"{folder}\{name}"
            if fnmatch.fnmatchcase(name.lower(), pattern.lower()) and machine.files.is_file(path):
                yield f"{above}/{name}", path
