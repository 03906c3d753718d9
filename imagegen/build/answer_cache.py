"""Remembers what tools answered, so that they need not be asked again: a small JSON file in the cache, keyed by the
question and believed only while the files that the answer came from are what they were."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pydantic

from imagegen.files import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_VERSION: Final = 2


class _Answer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)

    answer: str
    files: dict[str, tuple[int, int]]


class _Stamp(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    stamp_version: int
    answers: dict[str, _Answer]


class Memory:
    """Answers of earlier runs. A file that cannot be understood is an empty memory: it only costs the asking."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._answers = _read(file)

    def recall(self, question: str) -> str | None:
        """What was answered, if every file it rests on still has the size and time that it had."""
        known = self._answers.get(question)
        if known is None or _prints(Path(name) for name in known.files) != known.files:
            return None
        return known.answer

    def remember(
        self, question: str, answer: str, files: Iterable[Path], *, still: Callable[[], bool] = lambda: True
    ) -> None:
        """Keep an answer together with the files and folders that it rests on; not when one of them is not there.

        `still` is asked once these have been looked at: an answer that is older than its files would be believed.
        """
        prints = _prints(files)
        if prints is None or not _can_hold(self._file.parent) or not still():
            return
        # Read again: another run may have learned something meanwhile.
        self._answers = {**_read(self._file), question: _Answer(answer=answer, files=prints)}
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


def _prints(files: Iterable[Path]) -> dict[str, tuple[int, int]] | None:
    prints = {}
    for file in files:
        if not file.exists():
            return None
        status = file.stat()
        # A folder's time is no finer than some milliseconds, in which several things may be put into it.
        size = _sum_of_names(file) if file.is_dir() else status.st_size
        prints[str(file)] = (size, status.st_mtime_ns)
    return prints


def _sum_of_names(folder: Path) -> int:
    return zlib.crc32("/".join(sorted(path.name for path in folder.iterdir())).encode())


def _can_hold(folder: Path) -> bool:
    """Whether the cache can be written: on a read-only home the tools are asked each time."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return os.access(existing, os.W_OK | os.X_OK)


def question(*parts: object) -> str:
    """A key for the memory from the parts that make up a question."""
    return json.dumps([str(part) for part in parts])
