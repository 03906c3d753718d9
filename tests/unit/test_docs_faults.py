"""docs/faults.md: every fault that was found has a row, and every test that a row names is there."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = REPOSITORY / "docs" / "faults.md"
REALITY = REPOSITORY / "docs" / "reality.md"
TRUST = REPOSITORY / "docs" / "trust.md"
FAULTS = [
    *(f"F{number}" for number in range(1, 45)),
    *(f"P{number}" for number in range(1, 19)),
    *(f"R{number}" for number in range(1, 5)),
    *("N7", "N8", "N11", "B8"),
]
# Of the later reviews. What nobody can check without Windows, and what is missing by choice, is in docs/guest.md.
REVIEWED = {
    *(f"find-T{number}" for number in range(1, 14)),
    *(f"find-V{number}" for number in range(1, 18)),
    *(f"find-N{number}" for number in range(1, 7)),
    *(f"find-Q{number}" for number in range(1, 13)),
    *(f"find-P{number}" for number in range(19, 24)),
    *(f"content-C{number}" for number in (*range(1, 20), *range(22, 25), *range(30, 44), *range(60, 68), 70, 80, 88)),
    *(f"test-{name}" for name in ("R1", "R2", "P4", "A2", "C6", "V7", "L4")),
    *(f"test-{name}" for name in ("X18", "S4b", "V8", "T1", "T3", "K3", "K4")),
}
_ROW = re.compile(r"^\| ((?:find-|content-|test-)?[A-Za-z][a-z0-9 ]*) \| ([^|]+) \| ([^|]+) \|$")
_TEST = re.compile(r"`(tests/[^`]+)`")
# One of the file that the line has named before.
_ANY_TEST = re.compile(r"`((?:tests/|::)[^`]+)`")


def rows(document: Path = DOCUMENT) -> dict[str, list[str]]:
    """The tests of each row."""
    found = [match for line in document.read_text(encoding="utf-8").splitlines() if (match := _ROW.match(line))]
    return {match[1]: _TEST.findall(match[3]) for match in found}


def named_tests(document: Path) -> list[str]:
    """The tests in every table. `::test` is one of the file that stands before it."""
    found: list[str] = []
    for line in document.read_text(encoding="utf-8").splitlines():
        for name in _ANY_TEST.findall(line) if line.startswith("|") else ():
            found.append(found[-1].partition("::")[0] + name if name.startswith("::") else name)
    return found


@functools.cache
def source(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def is_there(name: str) -> bool:
    """A test function of that file; a case of it is a file or folder beside it, or stands in its text or its data: as a
    key at the start of a line of YAML.

    The text may have only the beginning of its name, to which a test adds the rest: `f"{name}-{target}"`.
    A case for Windows is named as `tests/windows/cases/service.yml: again`.
    """
    if ".yml: " in name:
        path, _, case = name.partition(": ")
        return (REPOSITORY / path).is_file() and f"\n  {case}:" in source(REPOSITORY / path).partition("\ncases:")[2]
    place, _, test = name.partition("::")
    function, _, case = test.removesuffix("]").partition("[")
    file = REPOSITORY / place
    if not file.is_file() or (function and f"def {function}(" not in source(file)):
        return False
    texts = (source(file), source(REPOSITORY / "tests" / "data" / "key-effects.json"))
    if any(f"\n{case}:" in f"\n{source(beside)}" for beside in file.parent.glob("*.yaml")):
        return True
    forms = [case, *(f'"{case[: dash.start()]}{end}' for dash in re.finditer("-", case) for end in ("-{", '"'))]
    return not case or any(file.parent.rglob(f"{case}*")) or any(form in text for form in forms for text in texts)


def test_every_fault_has_a_row_with_tests() -> None:
    found = rows()
    assert [name for name in found if name in FAULTS] == FAULTS
    assert [name for name, tests in found.items() if name != "what" and not tests] == []
    assert REVIEWED - found.keys() == set()


def test_no_fault_has_two_rows() -> None:
    names = [match[1] for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if (match := _ROW.match(line))]
    assert sorted(name for name in names if name != "what" and names.count(name) > 1) == []


@pytest.mark.parametrize("document", [DOCUMENT, REALITY, TRUST], ids=lambda document: document.stem)
def test_every_test_of_a_row_is_there(document: Path) -> None:
    found = named_tests(document)
    assert len(found) >= len(re.findall("(?m)^[|].*`tests/", document.read_text(encoding="utf-8"))) > 0
    assert [name for name in found if not is_there(name)] == []


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("tests/unit/test_docs_faults.py", True),
        ("tests/unit/test_docs_faults.py::test_a_test_that_is_not_there_is_noticed", True),
        ("tests/unit/test_docs_faults.py::test_a_test_that_is_not", False),
        ("tests/unit/test_no_such_file.py", False),
        ("tests/signatures/test_policy_cases.py::test_policy[every-verdict]", True),
        ("tests/signatures/test_policy_cases.py::test_policy[no-such-case]", False),
        ("tests/windows/cases/service.yml: again", True),
        ("tests/windows/cases/service.yml: no such case", False),
        ("tests/windows/cases/no-such-file.yml: again", False),
    ],
)
def test_a_test_that_is_not_there_is_noticed(name: str, there: bool) -> None:
    assert is_there(name) is there


def test_every_demand_of_reality_has_a_row() -> None:
    demands = [
        f"{letter}{number}" for letter, last in (("B", 13), ("N", 17), ("G", 6)) for number in range(1, last + 1)
    ]
    assert [name for name in rows(REALITY) if name != "what"] == demands
