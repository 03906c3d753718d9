"""What tar.exe of the model machine leaves of an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.files import Files
from imagegen.rehearsal.machine.kinds.files import unpack
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from tests.archives import tars, zips

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVE = r"C:\Windows\Temp\archive"


def unpacked(folder: Path, data: bytes, strip: int) -> set[str]:
    files = Files(folder)
    files.make_folder(r"C:\Windows\Temp")
    files.write(ARCHIVE, data)
    return set(unpack(files, ARCHIVE, strip))


@pytest.mark.parametrize(("strip", "left"), [(0, r"bin\a.exe"), (1, r"bin\a.exe"), (2, "a.exe"), (3, "")])
def test_a_leading_dot_is_a_folder_that_is_stripped(tmp_path: Path, strip: int, left: str) -> None:
    assert unpacked(tmp_path, tars.file(b"./bin/a.exe") + tars.END, strip) == ({left} if left else set())


def test_folders_are_stripped_from_a_zip(tmp_path: Path) -> None:
    assert unpacked(tmp_path, zips.zip_of(zips.Entry(), zips.Entry(b"LICENSE")), 1) == {"a.exe"}


def test_what_imagegen_refuses_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(RefusedByWindows, match=r"unrecognized or damaged archive: .* compressed with LZMA"):
        unpacked(tmp_path, zips.zip_of(zips.Entry(method=14)), 0)
