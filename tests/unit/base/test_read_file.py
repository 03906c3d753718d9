"""The one reader of files that a user names: a regular file within its bound, or one message that names the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError, ConflictError
from imagegen.base.files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 10


def _folder(at: Path) -> Path:
    at.mkdir()
    return at


def _pipe(at: Path) -> Path:
    os.mkfifo(at)
    return at


def _link_to_device(at: Path) -> Path:
    at.symlink_to("/dev/zero")
    return at


def _written(size: int) -> Callable[[Path], Path]:
    def write(at: Path) -> Path:
        at.write_bytes(b"x" * size)
        return at

    return write


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a folder": (_folder, "{file} is a folder, not a regular file"),
    "a pipe that nobody writes to": (_pipe, "{file} is a pipe, not a regular file"),
    "a device without an end": (_link_to_device, "{file} is a device, not a regular file"),
    "one byte too many": (_written(LIMIT + 1), "{file} is too large: it has 11 bytes, at most 10 are allowed"),
    "a file whose size is told as 0": (
        lambda _: Path("/proc/self/status"),
        "{file} is too large: it has more than 10 bytes, at most 10 are allowed",
    ),
    "a name too long": (lambda at: at.with_name("x" * 300), "{file} cannot be read: File name too long"),
    "a name with a null character": (lambda at: at.with_name("\0"), "{file} cannot be read: embedded null byte"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_name(case: str, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    file = make(tmp_path / "named")
    with pytest.raises(ConfigError) as refused:
        read_file(file, limit=LIMIT)
    assert refused.value.message == message.format(file=file)


def test_the_caller_chooses_name_and_error(tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match=r"^steps/a is too large"):
        read_file(_written(LIMIT + 1)(tmp_path / "a"), limit=LIMIT, shown_as="steps/a", error=ConflictError)


def test_a_regular_file_within_the_bound_is_read(tmp_path: Path) -> None:
    assert read_file(_written(LIMIT)(tmp_path / "a"), limit=LIMIT) == b"x" * LIMIT


def test_absence_is_for_the_caller_to_judge(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "a", limit=LIMIT)
