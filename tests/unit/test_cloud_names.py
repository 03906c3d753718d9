"""Rooms whose every word is general: what is of one cloud lies in that cloud's folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import imagegen

PACKAGE = Path(imagegen.__file__).parent
CLOUD = re.compile(r"\b(aws|azure|amazon|ec2|ami|gcp)\b", re.IGNORECASE)
# Configs that break a rule and what is said of them, made of tests/rules: a config names its targets.
EXAMPLES = PACKAGE / "rules" / "examples"
GENERAL = [
    *("catalog", "rules", "judging.py", "config/starter.py", "cli/starting.py", "cli/verbs/init.py"),
    *("cli/verbs/catalog.py", "cli/verbs/rules.py", "cli/rule_text.py"),
    *("providers/shared_rules.py", "providers/questions.py", "providers/tags.py"),
]


def lines_with_a_cloud(file: Path) -> list[str]:
    return [line for line in file.read_text(encoding="utf-8").splitlines() if CLOUD.search(line)]


@pytest.mark.parametrize("room", GENERAL)
def test_general_rooms_name_no_cloud(room: str) -> None:
    place = PACKAGE / room
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.suffix in (".py", ".json")]
    assert files
    assert [(file.name, line) for file in files if file.parent != EXAMPLES for line in lines_with_a_cloud(file)] == []


def test_a_name_is_seen() -> None:
    assert lines_with_a_cloud(PACKAGE / "providers" / "registry.py")
