"""Which forms of archives are read, and which are refused. Whether tar.exe reads them in the same way is judged by
libarchive's own bsdtar in tests/e2e/test_bsdtar.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import VerificationError
from imagegen.inspect.archive import find_type, read_members
from tests.archives import tars, zips

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.inspect.archive import ArchiveContents

WELL_FORMED = {"tar": tars.well_formed(), "zip": zips.well_formed()}
HOSTILE = {"tar": tars.hostile(), "zip": zips.hostile()}


def read(folder: Path, data: bytes) -> ArchiveContents:
    file = folder / "archive"
    file.write_bytes(data)
    form = find_type(data[:1024])
    assert form in ("zip", "tar.gz", "tar")
    return read_members(file, form, "tool")


@pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind, made in WELL_FORMED.items() for form in made])
def test_a_well_formed_archive_is_read(tmp_path: Path, kind: str, form: str) -> None:
    read(tmp_path, WELL_FORMED[kind][form])


@pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind, made in HOSTILE.items() for form in made])
def test_what_two_readers_read_in_two_ways_is_refused(tmp_path: Path, kind: str, form: str) -> None:
    data, reason = HOSTILE[kind][form]
    with pytest.raises(VerificationError, match=r"^tool (cannot be read as an archive|holds)") as refused:
        read(tmp_path, data)
    assert reason in str(refused.value)
