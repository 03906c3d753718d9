"""Receives the logs of a failed build's machine: the lines that `logs.ps1` prints, which become a zip on this machine.

No known secret of this run is in the zip, and nothing that looks like one: each text in it is read as the log is.
"""

import base64
import binascii
import contextlib
import hashlib
import io
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from imagegen.build.output import LOGS

FILE: Final = "guest-logs.zip"
# logs.ps1 keeps to 4 MB before it compresses.
_LONGEST: Final = 4 * 1024 * 1024
_MOST_FILES: Final = 500
_BEGIN = re.compile(r"begin (?P<size>[0-9]{1,8}) (?P<sha256>[0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9 ._-]{1,100}(?:/[A-Za-z0-9 ._-]{1,100}){0,3}")
_UNUSABLE: Final = "what the machine sent is not complete"


class GuestLogs:
    """The logs of one machine. Older ones in `file` are deleted first. `hide` takes the secrets out of a line."""

    def __init__(self, file: Path, hide: Callable[[str], str]) -> None:
        file.unlink(missing_ok=True)
        self._file = file
        self._hide = hide
        self._begun: re.Match[str] | None = None
        self._parts: list[str] = []
        self._length = 0
        self._why = ""
        self.is_asked = False
        """Whether Packer asked the machine for its logs."""
        self._is_saved = False

    def take(self, text: str) -> bool:
        """Take a line of the machine's output. Whether it was one of these."""
        if not text.startswith(LOGS):
            return False
        word = text.removeprefix(LOGS).strip()
        if begun := _BEGIN.fullmatch(word):
            self._begun, self._parts, self._length = begun, [], 0
        elif word == "end":
            self._save()
        elif self._length <= 2 * _LONGEST:
            self._parts.append(word)
            self._length += len(word)
        return True

    def explain(self, why: str) -> None:
        """Packer's reason why there are none."""
        self._why = self._why or why

    @property
    def line(self) -> str:
        """Where they are, or that there are none and why. Empty where nobody asked for them."""
        if self._is_saved:
            return f"the logs of the machine: {self._file}"
        why = self._why or (_UNUSABLE if self._begun else "the machine did not answer")
        return f"no logs of the machine: {why}" if self.is_asked else ""

    def _save(self) -> None:
        try:
            data = _decode(self._begun, "".join(self._parts))
            made = _clean(data, self._hide)
        except (ValueError, zipfile.BadZipFile, NotImplementedError, EOFError):
            self._why = _UNUSABLE
            return
        try:
            _write(self._file, made)
        except OSError as fault:
            self._why = f"{self._file} cannot be written: {fault.strerror}"
            return
        self._is_saved = True


def _decode(begun: re.Match[str] | None, text: str) -> bytes:
    if begun is None:
        raise ValueError("no beginning")
    data = base64.b64decode(text, validate=True)
    if len(data) != int(begun["size"]) or hashlib.sha256(data).hexdigest() != begun["sha256"]:
        raise binascii.Error("other bytes than the machine said")
    return data


def _clean(data: bytes, hide: Callable[[str], str]) -> bytes:
    """The zip again, without secrets. ValueError for one that logs.ps1 does not make: the machine is not trusted."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as sent, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as kept:
        files = sent.infolist()
        if len(files) > _MOST_FILES or sum(file.file_size for file in files) > _LONGEST:
            raise ValueError("too large")
        for file in files:
            if not _NAME.fullmatch(file.filename) or ".." in file.filename:
                raise ValueError(f"the name {file.filename!r}")
            kept.writestr(zipfile.ZipInfo(file.filename, file.date_time), _hide_in(sent.read(file), hide))
    return made.getvalue()


def _hide_in(data: bytes, hide: Callable[[str], str]) -> bytes:
    # The end of a UTF-16 file has no mark at its beginning.
    is_wide = data[:400].count(0) > len(data[:400]) // 4
    text = data.decode("utf-16-le" if is_wide else "utf-8", "replace")
    return "\n".join(hide(line) for line in text.splitlines()).encode()


def _write(file: Path, data: bytes) -> None:
    """Only its owner can read the file."""
    with contextlib.suppress(FileNotFoundError):
        file.unlink()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
