"""Golden files are rewritten in one place, and never by a test that passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import golden_files
from tests.golden_files import UPDATE, compare_golden

REPOSITORY = Path(__file__).parents[2]
TESTS = {path.relative_to(REPOSITORY).as_posix(): path.read_text() for path in (REPOSITORY / "tests").rglob("*.py")}
OWN = {"tests/golden_files.py", "tests/unit/test_golden_files.py"}


@pytest.fixture(autouse=True)
def _no_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(UPDATE, raising=False)


def _refused(now: dict[Path, str | None]) -> str:
    with pytest.raises(pytest.fail.Exception) as failed:
        compare_golden(now)
    return str(failed.value)


def test_what_is_as_agreed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "a").chmod(0o400)
    compare_golden({tmp_path / "a": "1\n", tmp_path / "b": None})
    monkeypatch.setenv(UPDATE, "1")
    monkeypatch.setattr(golden_files, "_rewrite", None)
    compare_golden({tmp_path / "a": "1\n", tmp_path / "b": None})


def test_what_differs_is_shown_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "gone").write_text("3\n")
    said = _refused({tmp_path / "a": "1\n4\n", tmp_path / "gone": None, tmp_path / "new" / "b": "5\n"}).splitlines()
    assert {"-2", "+4", "-3", "+5"} <= set(said)
    assert said[-1] == "if you meant this change: make golden"
    assert (tmp_path / "a").read_text() == "1\n2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "gone"]


@pytest.mark.parametrize(("agreed", "now"), [("1\n", "1"), ("1\n", "1\r\n"), ("1", "1\n")])
def test_ends_of_lines_count(agreed: str, now: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(agreed.encode())
    assert "the end differs" in _refused({tmp_path / "a": now})


def test_what_is_rewritten_fails_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "same").write_text("1\n")
    (tmp_path / "gone").write_text("2\n")
    now = {tmp_path / "same": "1\n", tmp_path / "gone": None, tmp_path / "new" / "b": "é\r\n"}
    monkeypatch.setenv(UPDATE, "1")
    assert _refused(now).splitlines() == [
        f"rewrote {tmp_path / name}, because IMAGEGEN_UPDATE_GOLDEN is set" for name in ("gone", "new/b")
    ]
    assert not (tmp_path / "gone").exists()
    assert (tmp_path / "new" / "b").read_bytes() == "é\r\n".encode()
    compare_golden(now)


def test_names_are_those_of_the_repository() -> None:
    assert "agreed/tests/no-such-golden" in _refused({REPOSITORY / "tests" / "no-such-golden": "1\n"})


def test_one_module_knows_of_the_update_mode() -> None:
    assert {path for path, text in TESTS.items() if "UPDATE_GOLDEN" in text} == OWN


def test_make_golden_runs_every_test_that_compares() -> None:
    comparing = [path for path, text in TESTS.items() if "compare_golden(" in text and path not in OWN]
    [listed] = re.findall(r"^GOLDENS := (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    run = listed.split()
    assert [path for path in comparing if not any(path == it or path.startswith(f"{it}/") for it in run)] == []
    assert [it for it in run if not any(path == it or path.startswith(f"{it}/") for path in comparing)] == []
