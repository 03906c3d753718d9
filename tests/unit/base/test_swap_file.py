"""A file is replaced only if nobody changed it meanwhile, and nothing is left beside it."""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
from typing import TYPE_CHECKING

import pytest

from imagegen.base.files import swap_file

if TYPE_CHECKING:
    from pathlib import Path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("there", "expected", "swapped"),
    [
        (None, None, True),
        (None, sha256(b"old"), False),
        (b"old", None, False),
        (b"old", sha256(b"old"), True),
        (b"older", sha256(b"old"), False),
    ],
)
def test_swap(tmp_path: Path, there: bytes | None, expected: str | None, *, swapped: bool) -> None:
    file = tmp_path / "new" / "x"
    if there is not None:
        file.parent.mkdir()
        file.write_bytes(there)
    assert swap_file(file, b"new", expected) is swapped
    assert (file.read_bytes() if file.exists() else None) == (b"new" if swapped else there)
    assert [path.name for path in file.parent.iterdir()] == (["x"] if file.exists() else [])


def test_of_many_at_once_each_finds_what_another_wrote(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("0")

    def add(_: int) -> None:
        while True:
            before = file.read_bytes()
            if swap_file(file, str(int(before) + 1).encode(), sha256(before)):
                return

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(add, range(20))]) == 20
    assert file.read_text() == "20"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_killed_run_keeps_nobody_out(tmp_path: Path) -> None:
    """Its lock ended with it, and the next run removes the file."""
    left = tmp_path / ".x.writing"
    with left.open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
    assert swap_file(tmp_path / "x", b"new", None)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
