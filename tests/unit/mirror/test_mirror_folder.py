"""A mirror in a folder: files appear whole, and nothing leads out of it."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import RefusedError, VerificationError
from imagegen.mirror.index import open_folder
from imagegen.providers.storage import StoredFile
from tests.unit.mirror.conftest import sha

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = b"bytes of a file" * 100_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(DATA)
    return tmp_path / "file"


def test_a_file_is_stored_with_its_bytes(tmp_path: Path, file: Path) -> None:
    root = tmp_path / "new" / "mirror"
    with open_folder(root, writes=True) as store:
        assert store.find("h/a/b.zip") is None
        store.put("h/a/b.zip", file, sha(DATA))
        assert store.find("h/a/b.zip") == StoredFile(len(DATA), sha(DATA))
        assert store.find("h/a/b.zip/c") is None
    assert (root / "h/a/b.zip").read_bytes() == DATA
    # A web server of another user reads it.
    assert stat.S_IMODE((root / "h/a/b.zip").stat().st_mode) == 0o644
    assert sorted(path.name for path in root.iterdir()) == ["h"]


def test_a_file_of_other_bytes_never_gets_its_name(tmp_path: Path, file: Path) -> None:
    with open_folder(tmp_path / "mirror", writes=True) as store:
        with pytest.raises(VerificationError, match="would have sha256"):
            store.put("h/a", file, "0" * 64)
        assert store.find("h/a") is None
    assert [*(tmp_path / "mirror").iterdir()] == []


def test_only_the_known_version_is_replaced(tmp_path: Path) -> None:
    with open_folder(tmp_path, writes=True) as one, open_folder(tmp_path, writes=True) as other:
        assert one.read("index.json", 100) is None
        assert one.replace("index.json", b"1", "")
        assert not other.replace("index.json", b"2", "")
        read = other.read("index.json", 100)
        assert read is not None
        assert other.replace("index.json", b"3", read[1])
        assert not one.replace("index.json", b"4", read[1])
    assert (tmp_path / "index.json").read_bytes() == b"3"


def test_more_than_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(b"12345")
    with open_folder(tmp_path, writes=True) as store, pytest.raises(RefusedError, match="too large"):
        store.read("index.json", 4)


@pytest.mark.parametrize("path", ["link/a", "link", "../outside/a"])
def test_a_path_does_not_lead_out_of_the_folder(path: str, tmp_path: Path, file: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "link").symlink_to(tmp_path / "outside")
    with open_folder(tmp_path / "mirror", writes=True) as store:
        for act in (lambda: store.find(path), lambda: store.put(path, file, sha(DATA)), lambda: store.read(path, 9)):
            with pytest.raises(RefusedError, match="leads out of the mirror"):
                act()
    assert [*(tmp_path / "outside").iterdir()] == []


def test_a_run_that_only_looks_changes_nothing(tmp_path: Path) -> None:
    with open_folder(tmp_path / "mirror", writes=False) as store:
        assert (store.find("h/a"), store.read("index.json", 9)) == (None, None)
    assert not (tmp_path / "mirror").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(RefusedError, match="file/mirror cannot be written"),
        open_folder(tmp_path / "file" / "mirror", writes=True),
    ):
        pass


def _pipe(file: Path) -> None:
    os.mkfifo(file)


def _socket(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(file))


@pytest.mark.parametrize("make", [_pipe, _socket])
@pytest.mark.parametrize("path", ["h/a.zip", "index.json", ".imagegen-mirror.lock"])
def test_what_is_no_file_is_refused_by_name_and_nobody_waits_for_it(
    make: Callable[[Path], None], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h").mkdir()
    # The path of a socket has at most 108 characters.
    make(Path(path))
    with open_folder(tmp_path, writes=True) as one:
        act = (lambda: one.find(path)) if path == "h/a.zip" else (lambda: one.replace("index.json", b"1", ""))
        with pytest.raises(RefusedError, match=re.escape(path)):
            act()
