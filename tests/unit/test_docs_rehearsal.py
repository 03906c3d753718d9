"""docs/rehearsal.md: its tables name each check of the verdict, and each folder that is closed, once."""

from __future__ import annotations

import re

from imagegen.boot.judge import CHECKS
from tests.conftest import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "rehearsal.md"


def first_column(header: str) -> list[str]:
    """The names in the first cell of each row of the table with this header."""
    table = DOCUMENT.read_text(encoding="utf-8").partition(f"| {header} |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_table_of_the_verdict_has_each_check_once_in_its_order() -> None:
    assert first_column("check") == [check.name for check in CHECKS]


def test_the_table_of_closed_folders_has_each_folder_once() -> None:
    folders = first_column("folder or file")
    assert folders
    assert len(folders) == len(set(folders)), sorted(folders)
