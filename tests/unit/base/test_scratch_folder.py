"""The folder of one run: gone at the end, and a killed run's gone with the next."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from imagegen.base.files import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PREFIX = "imagegen-rehearsal-"


def test_a_folder_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, PREFIX) as folder:
        (folder / "disk").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_runs_folder_is_removed_and_no_living_ones(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".held").touch()
    parent = tmp_path / "tmp"
    killed = parent / "imagegen-rehearsal-killed"
    starting = parent / "imagegen-rehearsal-starting"
    others = parent / "somebody-else"
    for folder in (killed, starting, others):
        folder.mkdir(parents=True)
    for folder in (killed, others):
        (folder / ".held").touch()
    (killed / "disk").mkdir()
    (parent / "imagegen-rehearsal-file").touch()
    (parent / "imagegen-rehearsal-link").symlink_to(elsewhere)
    with scratch_folder(parent, PREFIX) as living, scratch_folder(parent, PREFIX) as second:
        assert {living, second, starting, others} < set(parent.iterdir())
        assert not killed.exists()
        assert (elsewhere / ".held").exists()


def test_a_folder_that_a_killed_run_was_only_making_goes_when_it_is_old(tmp_path: Path) -> None:
    old, new = (tmp_path / f"{PREFIX}{name}" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir()
        (folder / ".held.new").touch()
    long_ago = time.time() - 2 * 3600
    os.utime(old, (long_ago, long_ago))
    with scratch_folder(tmp_path, PREFIX):
        assert new.exists()
        assert not old.exists()


def test_another_users_folder_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / f"{PREFIX}theirs"
    theirs.mkdir()
    (theirs / ".held").touch()
    monkeypatch.setattr("os.getuid", lambda: theirs.stat().st_uid + 1)
    with scratch_folder(tmp_path, PREFIX):
        assert (theirs / ".held").exists()
