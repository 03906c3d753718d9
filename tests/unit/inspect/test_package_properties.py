"""Name, version and maker of an MSI package that wixl made; and that no bytes are an error."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from imagegen.inspect.package_properties import read_properties
from tests.authenticode.support import fixture

PACKAGE = fixture("package.msi")
PROPERTIES = {"ProductName": "Example", "ProductVersion": "1.0.0", "CompanyName": "Example"}


def read(data: bytes) -> dict[str, str]:
    return read_properties(io.BytesIO(data))


def test_a_package_tells_what_it_installs() -> None:
    assert read(PACKAGE) == PROPERTIES
    assert read(fixture("stamped.msi")) == PROPERTIES


def test_other_files_have_none() -> None:
    assert [read(data) for data in (b"", b"MZ", fixture("program.exe"), PACKAGE[:600], PACKAGE[:4000])] == [{}] * 5


@given(st.lists(st.tuples(st.integers(0, len(PACKAGE) - 1), st.integers(0, 255)), min_size=1, max_size=30))
def test_damage_is_no_error(changes: list[tuple[int, int]]) -> None:
    data = bytearray(PACKAGE)
    for offset, value in changes:
        data[offset] = value
    found = read(bytes(data))
    assert set(found) <= set(PROPERTIES)
    assert all(len(text) <= 200 for text in found.values())


@given(st.integers(0, len(PACKAGE)), st.binary(max_size=64))
def test_no_bytes_are_an_error(offset: int, change: bytes) -> None:
    assert set(read(PACKAGE[:offset] + change)) <= set(PROPERTIES)
