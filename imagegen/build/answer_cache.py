"""Caches the answers of tools in a small JSON file. An answer is valid until one of the files it came from changes."""

import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pydantic

from imagegen.files import write_file

_VERSION: Final = 2


class _Answer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)

    answer: str
    files: dict[str, tuple[int, int]]


class _Stamp(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    stamp_version: int
    answers: dict[str, _Answer]


class AnswerCache:
    """Answers of earlier runs. A damaged file is an empty cache: it only costs time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._answers = _read(file)

    def get(self, key: str) -> str | None:
        """The answer, if every file that it came from still has the same size and time."""
        known = self._answers.get(key)
        if known is None or _fingerfingerprints(Path(name) for name in known.files) != known.files:
            return None
        return known.answer

    def put(
        self, key: str, answer: str, files: Iterable[Path], *, is_current: Callable[[], bool] = lambda: True
    ) -> None:
        """Store an answer with the files and folders that it came from, unless one of them is missing.

        `is_current` is called after their sizes and times were read: they could be newer than the answer.
        """
        fingerprints = _fingerfingerprints(files)
        if fingerprints is None or not _is_writable(self._file.parent) or not is_current():
            return
        # Read again: another run may have stored an answer meanwhile.
        self._answers = {**_read(self._file), key: _Answer(answer=answer, files=fingerprints)}
        stamp = _Stamp(stamp_version=_VERSION, answers=self._answers)
        write_file(self._file, stamp.model_dump_json(indent=1).encode())


def _read(file: Path) -> dict[str, _Answer]:
    if not file.exists():
        return {}
    try:
        stamp = _Stamp.model_validate_json(file.read_bytes())
    except pydantic.ValidationError:
        return {}
    return stamp.answers if stamp.stamp_version == _VERSION else {}


def _fingerfingerprints(files: Iterable[Path]) -> dict[str, tuple[int, int]] | None:
    fingerprints = {}
    for file in files:
        if not file.exists():
            return None
        status = file.stat()
        # A folder's time has a resolution of milliseconds, in which several files may be added.
        size = _checksum_of_names(file) if file.is_dir() else status.st_size
        fingerprints[str(file)] = (size, status.st_mtime_ns)
    return fingerprints


def _checksum_of_names(folder: Path) -> int:
    return zlib.crc32("/".join(sorted(path.name for path in folder.iterdir())).encode())


def _is_writable(folder: Path) -> bool:
    """Whether the cache can be written. On a read-only home the tools run each time."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return os.access(existing, os.W_OK | os.X_OK)


def cache_key(*parts: object) -> str:
    """The key of an answer: the tool, what it was asked, and the settings that it depends on."""
    return json.dumps([str(part) for part in parts])
