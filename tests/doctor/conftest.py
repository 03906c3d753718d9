"""What doctor cases share: a case is what a cloud answers, and what is said of it, rewritten by `make golden`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden_files import compare_golden

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from imagegen.providers.checks import Check

    Compare = Callable[[Path, Sequence[Check], list[str]], None]


@pytest.fixture
def compare() -> Compare:
    """The checks and the calls of a case are the expected ones."""

    def compared(file: Path, checks: Sequence[Check], calls: list[str]) -> None:
        case: dict[str, Any] = json.loads(file.read_text())
        rows = [
            [check.verdict, check.subject, check.message, *([check.hint] if check.hint else [])] for check in checks
        ]
        # `build --no-publish` is refused for nothing that only publishing needs.
        assert [check.subject for check in checks if check.of_publishing] == [
            check.subject for check in checks if check.subject.startswith("publish region")
        ]
        found = {"calls": calls, "checks": rows}
        compare_golden({file: json.dumps({**case, "expect": found}, indent=2) + "\n"})

    return compared
