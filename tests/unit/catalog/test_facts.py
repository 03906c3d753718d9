"""What the catalogue answers for one config's versions."""

from __future__ import annotations

import pytest

from imagegen.catalog.facts import CatalogRow, find_row, minor, numbers, table

MINORS = table("kubernetes")["minors"]
LINES = table("containerd")["lines"]
NEWEST = max(MINORS, key=numbers)


def after(version: str) -> str:
    major, number = numbers(version)
    return f"{major}.{number + 1}"


NEXT = after(NEWEST)


@pytest.mark.parametrize(
    ("version", "parts"),
    [("1.36.2", (1, 36, 2)), ("1.36.0-rc.1", (1, 36, 0)), ("3.10", (3, 10)), ("annual", ()), ("1." + "9" * 5000, ())],
)
def test_numbers(version: str, parts: tuple[int, ...]) -> None:
    assert numbers(version) == parts


def test_pre_release_has_the_minor_of_its_release() -> None:
    assert minor("1.36.0-rc.1") == "1.36"


@pytest.mark.parametrize(
    ("version", "found", "newer"),
    [
        ("1.36.2", "1.36", False),
        ("1.36.99", "1.36", False),
        ("1.36.0-rc.1", "1.36", False),
        ("1.14.0", "1.14", False),
        (f"{NEXT}.0", NEWEST, True),
        ("1.100.0", NEWEST, True),
        (f"{NEXT}.0-alpha.2", NEWEST, True),
    ],
)
def test_known_minor(version: str, found: str, newer: bool) -> None:
    row = find_row(MINORS, version)
    assert row is not None
    assert (row.minor, row.newer) == (found, newer)
    assert row.row is MINORS[found]


@pytest.mark.parametrize("version", ["1.13.12", "1.9.0", "2.0.0", "0.36.0", "annual", "1", "1." + "9" * 5000 + ".0"])
def test_unknown_minor(version: str) -> None:
    assert find_row(MINORS, version) is None


def test_lines_compare_as_numbers_and_a_gap_is_unknown() -> None:
    assert find_row({"1.9": {"it": 9}, "1.10": {"it": 10}}, "1.11.0") == CatalogRow({"it": 10}, "1.10", newer=True)
    assert find_row(LINES, "1.8.0") is None
    assert find_row(LINES, "3.0.0") is None
