from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ToolError
from imagegen.leftovers import journal
from imagegen.leftovers.journal import CLEANED, Entry, add_end, read_runs, recorded

if TYPE_CHECKING:
    from pathlib import Path

PLACE = {"region": "us-east-1", "auth": {"profile": None}}


def entry(run_id: str = "20261118t100000z-1a2b3c") -> Entry:
    return Entry(run_id, "aws", "0123", PLACE, "2026-11-18T10:00:00Z", "2026-11-18T16:00:00Z")


def folder(out: Path) -> Path:
    return out / "node" / "journal"


def test_a_run_is_told_before_it_starts_and_lives_until_it_ends(tmp_path: Path) -> None:
    with recorded(folder(tmp_path), entry(), pytest.fail) as written:
        [run] = read_runs(tmp_path, pytest.fail)
        assert (run.entry, run.is_here, run.is_alive, run.ended) == (written, True, True, "")
        assert not run.may_have_left_something
    [run] = read_runs(tmp_path, pytest.fail)
    assert (run.entry, run.is_alive, run.ended, run.may_have_left_something) == (entry(), False, "built", False)


@pytest.mark.parametrize(("error", "how"), [(KeyboardInterrupt, "interrupted"), (ValueError, "failed")])
def test_how_a_run_ended_badly_is_told(tmp_path: Path, error: type[BaseException], how: str) -> None:
    with pytest.raises(error), recorded(folder(tmp_path), entry(), pytest.fail):
        raise error
    [run] = read_runs(tmp_path, pytest.fail)
    assert (run.is_alive, run.ended, run.may_have_left_something) == (False, how, True)


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def started(**changes: object) -> str:
    with_host = {"event": "started", **vars(entry()), **changes}
    return json.dumps(with_host)


@pytest.mark.parametrize("end", ["", "\n", '\n{"event": "en', "\n\x00\x00\x00", "\n[]\n"])
def test_a_run_that_was_killed_is_dead_whatever_its_last_line(tmp_path: Path, end: str) -> None:
    file = written(folder(tmp_path) / "20261118t100000z-1a2b3c.jsonl", started() + end)
    [run] = read_runs(tmp_path, pytest.fail)
    assert (run.file, run.is_here, run.is_alive, run.ended) == (file, True, False, "")
    assert run.may_have_left_something
    add_end(run.file, CLEANED, pytest.fail)
    [run] = read_runs(tmp_path, pytest.fail)
    assert (run.ended, run.may_have_left_something) == ("cleaned up", False)


@pytest.mark.parametrize("text", ["", '{"event": "star', '{"event": "ended"}\n', "[" * 100_000])
def test_a_run_that_was_killed_while_it_wrote_its_first_line_started_nothing(tmp_path: Path, text: str) -> None:
    written(folder(tmp_path) / "20261118t100000z-1a2b3c.jsonl", text)
    assert read_runs(tmp_path, pytest.fail) == []


def test_a_journal_of_an_earlier_version_claims_nothing(tmp_path: Path) -> None:
    told = json.loads(started())
    del told["claim"]
    written(folder(tmp_path) / "20261118t100000z-1a2b3c.jsonl", json.dumps(told))
    [run] = read_runs(tmp_path, pytest.fail)
    assert run.entry.claim == ""


def test_of_another_machines_run_nothing_is_known(tmp_path: Path) -> None:
    file = written(folder(tmp_path) / "20261118t100000z-1a2b3c.jsonl", started(host="builder-7"))
    with file.open("rb") as handle:
        # Whoever holds it on this machine is not that run.
        fcntl.flock(handle, fcntl.LOCK_EX)
        [run] = read_runs(tmp_path, pytest.fail)
    assert (run.is_here, run.is_alive, run.may_have_left_something) == (False, False, False)


def test_runs_of_all_configs_are_read_in_their_order(tmp_path: Path) -> None:
    for name, run_id in (("b", "20261118t100000z-000001"), ("a", "20261118t100001z-000000")):
        with recorded(tmp_path / name / "journal", entry(run_id), pytest.fail):
            pass
    assert [run.entry.run_id for run in read_runs(tmp_path, pytest.fail)] == [
        "20261118t100000z-000001",
        "20261118t100001z-000000",
    ]


def test_a_machine_has_a_name_also_where_it_has_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MACHINE_ID", written(tmp_path / "machine-id", "abc\n"))
    assert journal.this_host() == f"{platform.node()}/abc"
    monkeypatch.setattr(journal, "_MACHINE_ID", tmp_path / "none")
    assert journal.this_host() == platform.node()


def test_a_journal_that_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    (folder(tmp_path) / "20261118t090000z-000000.jsonl").mkdir(parents=True)
    with recorded(folder(tmp_path), entry(), pytest.fail):
        pass
    told: list[str] = []
    assert [run.entry for run in read_runs(tmp_path, told.append)] == [entry()]
    [warning] = told
    assert warning.endswith("20261118t090000z-000000.jsonl is a folder, not a regular file")


RUN_ID = "20261118t100000z-1a2b3c"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (started(run_id=["x"]), "run_id: Input should be a valid string"),
        (started(place=[]), "place: Input should be an object"),
        (started(pid="42"), "pid: Input should be a valid integer"),
        (started(more=1), "more: Unexpected"),
        (started(run_id="20261118t100000z-000000"), "it is named after another run than '20261118t100000z-000000'"),
        ('{"event": "started", "run_id": "x"}', "target: Field required"),
        (started() + "\n" * 2_000_000, "is too large"),
    ],
)
def test_what_is_no_journal_of_a_run_is_named_and_hides_no_other(tmp_path: Path, text: str, says: str) -> None:
    written(folder(tmp_path) / f"{RUN_ID}.jsonl", text)
    with recorded(folder(tmp_path), entry("20261118t110000z-1a2b3c"), pytest.fail):
        pass
    told: list[str] = []
    assert [run.entry.run_id for run in read_runs(tmp_path, told.append)] == ["20261118t110000z-1a2b3c"]
    [warning] = told
    assert f"{RUN_ID}.jsonl is" in warning
    assert says in warning
    assert warning.startswith("skipping a journal: ")


def test_a_pipe_among_the_journals_is_not_waited_for(tmp_path: Path) -> None:
    folder(tmp_path).mkdir(parents=True)
    os.mkfifo(folder(tmp_path) / f"{RUN_ID}.jsonl")
    told: list[str] = []
    assert read_runs(tmp_path, told.append) == []
    assert "is a pipe, not a regular file" in told[0]


def test_where_there_are_no_locks_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(ToolError, match=r"1a2b3c\.jsonl cannot be locked: No locks available"),
        recorded(folder(tmp_path), entry(), pytest.fail),
    ):
        pytest.fail("began without a lock")
    assert read_runs(tmp_path, lambda _: None) == []


def test_on_a_full_disk_a_run_ends_with_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def interrupt() -> None:
        monkeypatch.setattr(journal, "_append", refuse)
        raise KeyboardInterrupt

    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), recorded(folder(tmp_path), entry(), told.append):
        interrupt()
    [warning] = told
    assert "jsonl cannot be written, so the run is recorded without its end (interrupted): " in warning
