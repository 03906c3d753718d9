from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from imagegen.base.errors import ToolError
from imagegen.base.locks import locked
from imagegen.build.packer import BuildFolder


def test_a_lock_that_stays_held_is_waited_for_and_given_up(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "lock"
    told: list[str] = []
    with (
        locked(file, wait_s=0, waiting=lambda: told.append("outer")),
        pytest.raises(ToolError, match="another run has held"),
        locked(file, wait_s=0.05, waiting=lambda: told.append("inner")),
    ):
        pytest.fail("held twice")
    assert told == ["inner"]


def test_a_lock_is_free_again_after_a_failure(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(ValueError, match="inside"), locked(tmp_path / "lock", wait_s=0, waiting=lambda: None):
        raise ValueError("inside")
    with locked(tmp_path / "lock", wait_s=0, waiting=lambda: told.append("waited")):
        assert told == []


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    file = tmp_path / "lock"
    with (
        pytest.raises(ToolError, match=f"{file} cannot be locked: {os.strerror(code)}"),
        locked(file, wait_s=0, waiting=lambda: pytest.fail("there is nobody to wait for")),
    ):
        pytest.fail("held nothing")


def test_the_parts_of_a_build_folder() -> None:
    folder = BuildFolder(Path("out/x/1"))
    names = [path.name for path in (folder.tree, folder.log, folder.report("run-1"))]
    assert names == ["tree", "packer.log", "run-1.json"]
