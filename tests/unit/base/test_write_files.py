"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.base.files import replacing, write_file, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable

_TREE = {"build.pkr.hcl": b"build {}\n", "guest/kinds/acl.ps1": b"\xef\xbb\xbf# acl", "guest/empty": b""}


def turned(file: Path, into: Callable[[Path], None]) -> None:
    """Something else where the file was."""
    file.unlink()
    into(file)


def held(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_tree_is_written_with_its_modes(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "tree"
    write_tree(_TREE, folder)
    assert held(folder) == _TREE
    modes = {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert {modes[key] for key in _TREE} == {0o644}
    assert {modes["guest"], modes["guest/kinds"], stat.S_IMODE(folder.stat().st_mode)} == {0o755}
    assert [path.name for path in folder.parent.iterdir()] == ["tree"]


def test_an_equal_tree_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    write_tree(_TREE, folder)
    before = (folder.stat().st_ino, (folder / "build.pkr.hcl").stat().st_mtime_ns)
    write_tree(dict(_TREE), folder)
    assert (folder.stat().st_ino, (folder / "build.pkr.hcl").stat().st_mtime_ns) == before


@pytest.mark.parametrize("stray", ["stale.pkr.hcl", "guest/kinds/old.ps1", "new-folder/x"])
def test_what_the_tree_does_not_hold_disappears(tmp_path: Path, stray: str) -> None:
    folder = tmp_path / "tree"
    write_tree(_TREE, folder)
    (folder / stray).parent.mkdir(exist_ok=True)
    (folder / stray).write_bytes(b"old")
    write_tree(_TREE, folder)
    assert held(folder) == _TREE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "guest" / "nothing").mkdir(),
        lambda folder: (folder / "link").symlink_to(folder.parent),
        lambda folder: os.mkfifo(folder / "pipe"),
        lambda folder: turned(folder / "guest/empty", Path.mkdir),
        lambda folder: turned(folder / "guest/empty", os.mkfifo),
        lambda folder: ((folder / "guest").rename(folder.parent / "g"), (folder / "guest").symlink_to("../g")),
        lambda folder: (folder / "guest" / "empty").unlink(),
        lambda folder: (folder / "build.pkr.hcl").write_bytes(b"edited"),
    ],
    ids=[
        *("an empty folder", "a link", "a pipe", "a folder for a file", "a pipe for a file", "a link for a folder"),
        *("a missing file", "an edited file"),
    ],
)
def test_a_folder_that_differs_is_made_right(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    folder = tmp_path / "tree"
    write_tree(_TREE, folder)
    spoil(folder)
    write_tree(_TREE, folder)
    assert held(folder) == _TREE
    assert sorted(path.name for path in folder.rglob("*") if path.is_dir()) == ["guest", "kinds"]


@pytest.mark.parametrize(
    "key", ["", ".", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a\\b", "a/./b", "a\0b"]
)
def test_a_key_that_could_leave_the_folder_is_refused_before_anything_is_written(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="of a file in a tree"):
        write_tree({"fine": b"", key: b""}, tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_the_old_tree_stays_when_the_new_one_cannot_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tree"
    write_tree(_TREE, folder)

    def full(_path: Path, _content: bytes) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        write_tree({"other": b""}, folder)
    assert held(folder) == _TREE
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_the_old_tree_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tree"
    write_tree(_TREE, folder)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError("gone")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="gone"):
        write_tree({"other": b""}, folder)
    assert held(folder) == _TREE


def test_a_file_is_written_whole_and_only_when_it_differs(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "x.lock"
    write_file(file, b"one")
    before = file.stat()
    write_file(file, b"one")
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    write_file(file, b"two")
    assert file.read_bytes() == b"two"
    assert file.stat().st_ino != before.st_ino
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in file.parent.iterdir()] == ["x.lock"]


def test_a_file_that_cannot_be_finished_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"old")

    def fill() -> None:
        with replacing(file) as new:
            new.write(b"half")
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        fill()
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_may_be_for_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "x"
    with replacing(file, mode=0o600) as new:
        new.write(b"whole")
        assert not file.exists()
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"whole", 0o600)
