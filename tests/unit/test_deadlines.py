"""No test has a deadline of its own that a busy machine can miss."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

_DEADLINE = re.compile(r"(?m)^(_?[A-Z_]*DEADLINE_S)\b[^=\n]*= *(.+)$")


def test_a_deadline_of_a_test_ends_only_what_hangs() -> None:
    found = {
        (file.name, name): value
        for file in (REPOSITORY / "tests").rglob("*.py")
        for name, value in _DEADLINE.findall(file.read_text(encoding="utf-8"))
    }
    assert len(found) > 3
    assert set(found.values()) == {"HANG_S"}, found
