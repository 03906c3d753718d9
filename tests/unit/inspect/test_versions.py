"""The version of a program as Explorer shows it, and that of a package of wixl; and that no bytes are an error."""

from __future__ import annotations

import io
import struct
import tempfile
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagegen.inspect.versions import SHOWN, read_properties, read_version
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
PACKAGE: Final = fixture("package.msi")
PROPERTIES: Final = {"ProductName": "Example", "ProductVersion": "1.0.0", "CompanyName": "Example"}
Changes = list[tuple[int, int]]


def read(data: bytes) -> dict[str, str]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        return read_version(file)


def properties(data: bytes) -> dict[str, str]:
    return read_properties(io.BytesIO(data))


def changes(data: bytes) -> st.SearchStrategy[Changes]:
    return st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), min_size=1, max_size=40)


def changed(data: bytes, made: Changes) -> bytes:
    copy = bytearray(data)
    for offset, value in made:
        copy[offset] = value
    return bytes(copy)


def test_the_texts_of_the_first_language_count_and_numbers_where_there_is_no_text() -> None:
    assert read(PROGRAM) == VERSION


@pytest.mark.parametrize("data", [b"", b"MZ", fixture("program.exe"), PACKAGE, PROGRAM[:2000]])
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


RESOURCE: Final = PROGRAM.index(_wide("VS_VERSION_INFO")) - 6


def test_a_table_of_endless_texts_ends() -> None:
    """Each of its 16,000 rows has four bytes, and a key that goes on to the end of the section."""
    section = PROGRAM.index(b".rsrc")
    address, start = struct.unpack_from("<I", PROGRAM, section + 12)[0], struct.unpack_from("<I", PROGRAM, section + 20)
    table = PROGRAM.index(_wide("040904")) - 6
    long = bytearray(PROGRAM[start[0] :]) + b"A\0" * (1 << 20)
    struct.pack_into("<H", long, table - start[0], 0xFFFF)
    rows = table - start[0] + 24
    for at in range(rows, rows + 0xFFF0, 4):
        struct.pack_into("<HH", long, at, 4, 1)
    data = bytearray(PROGRAM) + long
    # The section is now behind the old file, and as long as it needs to be.
    struct.pack_into("<IIII", data, section + 8, len(long), address, len(long), len(PROGRAM))
    entry = PROGRAM.index(struct.pack("<I", address + RESOURCE - start[0]), start[0]) + len(PROGRAM) - start[0]
    struct.pack_into("<I", data, entry + 4, 0xFFFF)
    assert read(bytes(data)) == {}


@given(changes(PROGRAM))
def test_damage_of_a_program_is_no_error(made: Changes) -> None:
    found = read(changed(PROGRAM, made))
    assert set(found) <= set(SHOWN)
    assert all(len(text) <= 201 for text in found.values())


@given(st.integers(RESOURCE - 120, RESOURCE + 700), st.binary(min_size=1, max_size=8))
def test_damage_of_the_resource_is_no_error(offset: int, change: bytes) -> None:
    found = read(PROGRAM[:offset] + change + PROGRAM[offset + len(change) :])
    assert set(found) <= set(SHOWN)


@given(st.binary(max_size=400))
def test_no_bytes_of_a_program_are_an_error(data: bytes) -> None:
    assert set(read(PROGRAM[:200] + data)) <= set(SHOWN)
    assert set(read(b"MZ" + data)) <= set(SHOWN)


def test_a_package_tells_what_it_installs() -> None:
    assert properties(PACKAGE) == PROPERTIES
    assert properties(fixture("stamped.msi")) == PROPERTIES


def test_files_that_are_no_package_have_no_properties() -> None:
    assert [properties(data) for data in (b"", b"MZ", fixture("program.exe"), PACKAGE[:600], PACKAGE[:4000])] == [
        {}
    ] * 5


@given(changes(PACKAGE))
def test_damage_of_a_package_is_no_error(made: Changes) -> None:
    found = properties(changed(PACKAGE, made))
    assert set(found) <= set(SHOWN)
    assert all(len(text) <= 200 for text in found.values())


@given(st.integers(0, len(PACKAGE)), st.binary(max_size=64))
def test_no_bytes_of_a_package_are_an_error(offset: int, change: bytes) -> None:
    assert set(properties(PACKAGE[:offset] + change)) <= set(SHOWN)
