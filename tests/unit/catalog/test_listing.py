"""Tables as people read them."""

from __future__ import annotations

import pytest

from imagegen.catalog import listing
from imagegen.catalog.facts import sources, table
from imagegen.catalog.listing import describe, tables


def test_tables_are_the_files_of_the_catalogue_and_of_the_providers() -> None:
    assert {"kubernetes", "windows", "aws-instances", "azure-sizes"} < set(tables())
    assert tables() == sorted(set(tables()))


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("width", [80, 100])
def test_table_fits_and_says_where_it_is_from(name: str, width: int) -> None:
    lines = describe(name, width)
    assert " ".join(lines[: lines.index("")]) == table(name)["title"]
    # A word that is longer than the line is not broken: it is copied.
    assert [line for line in lines if len(line) > width and " " in line.strip().split(": ")[-1].split("] ")[-1]] == []
    assert [line for line in lines if line != line.rstrip()] == []
    text = " ".join(" ".join(lines).split())
    for key, source in sources(name).items():
        assert f"{key}: {source['from']} (read {source['read']})" in text
    for section in set(table(name)) - {"title", "source", "sources"}:
        assert any(line.split("  ")[0].split(":")[0] == section for line in lines), section


def test_rows_are_aligned_in_blocks_with_notes_below(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "a text that is much longer than a cell of the table may be, so that it stands below"
    data = {
        "title": "Things",
        "sources": {"s": {"from": "somewhere", "read": "2026-01-01"}},
        "source": {"plain": "s", "one": "s", "items": "s"},
        "rows": {
            "a": {"n": 1, "deep": {"x": "y"}, "why": long, "v": {"verdict": "refused", "reason": long}, "source": "s"},
            "longer": {"n": None, "flag": True, "list": ["p", "q"], "v": {"verdict": "tested", "reason": None}},
        },
        "items": [{"k": False, "fixes": [{"a": 1}, {"a": 2}]}],
        "plain": {"here": "C:\\k", "none": []},
        "one": ["p", "q"],
    }
    monkeypatch.setattr(listing, "table", lambda _: data)
    monkeypatch.setattr(listing, "sources", lambda _: data["sources"])
    assert describe("things", 40) == [
        "Things",
        "",
        "Sources:",
        "  s: somewhere (read 2026-01-01)",
        "",
        "rows    n  deep.x  why  v",
        "a       1  y       [1]  refused [1]",
        "longer  -               tested",
        "",
        "rows    source  flag  list",
        "a       s",
        "longer          yes   p, q",
        "  [1] a text that is much longer than a",
        "      cell of the table may be, so that",
        "      it stands below",
        "",
        "items  k   fixes",
        "1      no  [1] [2]",
        "  [1] a: 1",
        "  [2] a: 2",
        "",
        "plain",
        "here   C:\\k",
        "none   -",
        "",
        "one: p, q",
    ]
