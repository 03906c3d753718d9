"""The version of a program as Explorer shows it, from files of mingw-w64; and that no bytes are an error."""

from __future__ import annotations

import io
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagegen.inspect.version_resource import SHOWN, read_version
from tests.authenticode.support import fixture
from tests.conftest import REPOSITORY

PROGRAM: Final = (REPOSITORY / "tests" / "data" / "versioned.exe").read_bytes()
VERSION: Final = {
    "FileVersion": "v1.36.2+signed",
    "ProductVersion": "1.36.0.0",
    "CompanyName": "Example Corporation",
    "FileDescription": "kubelet",
    "OriginalFilename": "kubelet.exe",
}


def read(data: bytes) -> dict[str, str]:
    return read_version(io.BytesIO(data))


def test_the_texts_of_the_first_language_count_and_numbers_where_there_is_no_text() -> None:
    assert read(PROGRAM) == VERSION


@pytest.mark.parametrize("data", [b"", b"MZ", fixture("program.exe"), fixture("package.msi"), PROGRAM[:2000]])
def test_other_files_have_none(data: bytes) -> None:
    assert read(data) == {}


def _wide(text: str) -> bytes:
    return text.encode("utf-16-le")


def test_only_the_numbers_are_left_of_a_resource_without_texts() -> None:
    assert read(PROGRAM.replace(_wide("StringFileInfo"), _wide("StringFileInfx"))) == {
        "FileVersion": "1.36.2.0",
        "ProductVersion": "1.36.0.0",
    }


def test_a_long_text_is_cut() -> None:
    company = _wide("Example Corporation\0")
    assert company in PROGRAM
    found = read(PROGRAM.replace(company, b"A\0" * (len(company) // 2)))
    assert all(len(text) <= 201 for text in found.values())


@given(st.lists(st.tuples(st.integers(0, len(PROGRAM) - 1), st.integers(0, 255)), min_size=1, max_size=40))
def test_damage_is_no_error(changes: list[tuple[int, int]]) -> None:
    data = bytearray(PROGRAM)
    for offset, value in changes:
        data[offset] = value
    found = read(bytes(data))
    assert set(found) <= set(SHOWN)
    assert all(len(text) <= 201 for text in found.values())


RESOURCE: Final = PROGRAM.index(_wide("VS_VERSION_INFO")) - 6


@given(st.integers(RESOURCE - 120, RESOURCE + 700), st.binary(min_size=1, max_size=8))
def test_damage_of_the_resource_is_no_error(offset: int, change: bytes) -> None:
    found = read(PROGRAM[:offset] + change + PROGRAM[offset + len(change) :])
    assert set(found) <= set(SHOWN)


@given(st.binary(max_size=400))
def test_no_bytes_are_an_error(data: bytes) -> None:
    assert set(read(PROGRAM[:200] + data)) <= set(SHOWN)
    assert set(read(b"MZ" + data)) <= set(SHOWN)
