"""The cache of downloads: what it has, what it trusts, what leaves it, and what several runs may do with it at once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import stat
from typing import IO, TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.base.files import holding
from imagegen.fetch import cache
from imagegen.fetch.cache import Cache, UrlRecord, find_folder, size_limit
from imagegen.fetch.download import Fetched, Version

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A, B, C = b"bytes of a", b"bytes of b", b"bytes of c"
URL = "https://a.example/a.zip"
SECRET_URL = f"{URL}?sig=secret"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.warnings = folder / "cache", list[str]()
        self.cache = self.open(2**30)

    def open(self, limit: int) -> Cache:
        return Cache(self.folder, limit, self.warnings.append)

    def put(self, data: bytes, *, used: float | None = None, url: str = "") -> Path:
        with self.cache.opened() as parts:
            part = parts / "part"
            part.write_bytes(data)
            with self.cache.add(part, sha256(data)) as file:
                assert file.read_bytes() == data
        if used is not None:
            os.utime(file, (used, used))
        if url:
            self.cache.record(url, Fetched(sha256(data), len(data), Version('"1"', "yesterday")), "/x.lock.json")
        return file

    def has(self, data: bytes) -> bool:
        with self.cache.use(sha256(data)) as file:
            return file is not None

    def names(self) -> set[str]:
        return {path.name for path in (self.folder / "sha256").iterdir()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_file_is_found_by_its_digest(world: World) -> None:
    assert not world.has(A), "there is no folder yet"
    world.put(A)
    with world.cache.use(sha256(A)) as file:
        assert file is not None
        assert file.read_bytes() == A
    assert not world.has(B)
    assert world.warnings == []


def test_only_its_user_reads_it(world: World) -> None:
    world.put(A, url=URL)
    paths = [world.folder, *world.folder.rglob("*")]
    modes = {path.relative_to(world.folder): stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert len(modes) == 5
    assert [name for name, mode in modes.items() if mode != (0o700 if (world.folder / name).is_dir() else 0o600)] == []


def test_a_folder_that_others_may_read_is_closed(world: World) -> None:
    (world.folder / "sha256").mkdir(parents=True)
    for folder in (world.folder, world.folder / "sha256"):
        folder.chmod(0o755)
    world.put(A)
    assert stat.S_IMODE(world.folder.stat().st_mode) == stat.S_IMODE((world.folder / "sha256").stat().st_mode) == 0o700


def test_a_link_to_a_folder_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    world.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="is not a folder of this user"), world.cache.opened():
        pass


def test_a_folder_of_another_user_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put(A)
    user = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: user + 1)
    with pytest.raises(RefusedError, match="is not a folder of this user"), world.cache.opened():
        pass


def _flip(file: Path) -> None:
    file.write_bytes(b"x" + file.read_bytes()[1:])


def _append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"x")


def _truncate(file: Path) -> None:
    os.truncate(file, 3)


def _empty(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize("damage", [_flip, _append, _truncate, _empty])
def test_a_file_that_was_changed_is_removed_and_named(world: World, damage: Callable[[Path], None]) -> None:
    file = world.put(A)
    damage(file)
    assert not world.has(A)
    assert world.warnings == [f"{file} has other bytes than its name says: it is removed"]
    assert world.names() == set()


def test_a_cache_that_may_only_be_read_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, damaged = world.put(A), world.put(B)
    _flip(damaged)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(type(damaged), "unlink", refuse)
    assert world.cache.verify([sha256(A), sha256(B)]) == {sha256(A)}
    assert world.warnings == [
        f"{damaged} has other bytes than its name says: it is not used, but cannot be removed: Read-only file system"
    ]
    assert world.names() == {whole.name, damaged.name}


def _as_link(file: Path, elsewhere: Path) -> None:
    elsewhere.write_bytes(A)
    file.symlink_to(elsewhere)


def _as_pipe(file: Path, _: Path) -> None:
    os.mkfifo(file)


def _as_folder(file: Path, _: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize("plant", [_as_link, _as_pipe, _as_folder])
def test_what_is_no_file_is_not_read(world: World, tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    """A pipe without a writer would wait for ever, and another user may write what a link leads to."""
    file = world.put(A)
    file.unlink()
    plant(file, tmp_path / "elsewhere")
    assert not world.has(A)


def test_a_use_makes_a_file_young(world: World) -> None:
    world.put(A, used=1000)
    world.put(B, used=2000)
    assert world.has(A)
    assert [one.sha256 for one in world.cache.files()] == [sha256(B), sha256(A)]


def test_the_file_that_was_used_longest_ago_goes_first(world: World) -> None:
    for data, used in ((A, 3000), (B, 1000), (C, 2000)):
        world.put(data, used=used)
    world.open(2 * len(A)).trim()
    assert world.names() == {sha256(A), sha256(C)}
    world.open(0).trim()
    assert world.names() == set()


def test_a_file_in_use_stays_whatever_the_limit(world: World) -> None:
    world.put(A)
    world.put(B)
    with world.cache.use(sha256(A)) as file:
        assert file is not None
        world.open(0).trim()
        assert world.names() == {sha256(A)}
        assert not world.open(0).remove(sha256(A))
    assert world.cache.remove(sha256(A))
    assert world.cache.remove(sha256(A)), "it is gone already"


def test_a_new_file_stays_while_it_is_used_and_then_the_limit_holds(world: World) -> None:
    small = world.open(1)
    with small.opened() as parts:
        part = parts / "part"
        part.write_bytes(A)
        with small.add(part, sha256(A)) as file:
            assert file.exists()
    assert world.names() == set()


def test_two_runs_add_the_same_file(world: World) -> None:
    with world.cache.opened() as parts, contextlib.ExitStack() as held:
        for name in ("one", "two"):
            (parts / name).write_bytes(A)
            file = held.enter_context(world.cache.add(parts / name, sha256(A)))
            assert file.read_bytes() == A
    assert world.has(A)


def test_a_file_in_use_is_not_replaced_by_the_same_bytes_of_another_run(world: World) -> None:
    """The other run's trim would remove it: nothing holds the new file but that run."""
    one, two = world.open(0), world.open(0)
    with one.opened() as parts, one.add(_part(parts, A), sha256(A)) as file:
        with two.opened() as others, two.add(_part(others, A), sha256(A)) as same:
            assert same.read_bytes() == A
            assert [*others.glob("part")] == []
        assert file.read_bytes() == A
    assert world.names() == set()


def _part(folder: Path, data: bytes) -> Path:
    part = folder / "part"
    part.write_bytes(data)
    return part


@pytest.mark.parametrize("plant", [_flip, os.unlink, lambda file: file.chmod(0)], ids=["damaged", "gone", "unreadable"])
def test_a_damaged_file_is_replaced(world: World, plant: Callable[[Path], None]) -> None:
    plant(world.put(A))
    world.put(A)
    assert world.has(A)


def test_a_damaged_file_that_another_run_has_replaced_is_not_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, digest_of = world.put(A), cache._digest_of
    _flip(file)

    def late(handle: io.BufferedReader) -> str:
        found = digest_of(handle)
        monkeypatch.setattr(cache, "_digest_of", digest_of)
        file.unlink()
        world.put(A)
        return found

    monkeypatch.setattr(cache, "_digest_of", late)
    assert not world.has(A)
    assert world.has(A), "the new one is there"


def test_a_file_that_another_run_puts_there_meanwhile_is_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = Cache._changing
    written: list[Path] = []

    def late(this: Cache) -> contextlib.AbstractContextManager[None]:
        monkeypatch.setattr(Cache, "_changing", changing)
        written.append(world.put(A))
        return changing(this)

    monkeypatch.setattr(Cache, "_changing", late)
    with world.cache.opened() as parts:
        before = _part(parts, A).stat().st_ino
        with world.cache.add(parts / "part", sha256(A)) as file:
            assert file.stat().st_ino != before
    assert written == [file]


@pytest.mark.parametrize("plant", [_as_link, _as_pipe, _as_folder])
def test_what_is_no_file_is_not_listed(world: World, tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    file = world.put(A)
    file.unlink()
    plant(file, tmp_path / "elsewhere")
    assert world.cache.files() == []
    world.open(0).trim()
    assert world.names() == {sha256(A)}


def test_a_file_that_is_replaced_while_it_waits_for_its_turn_is_not_trusted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening of a file and its lock another run may remove it."""
    file = world.put(A)

    def late(handle: IO[bytes], path: Path) -> contextlib.AbstractContextManager[bool]:
        file.unlink()
        return holding(handle, path)

    monkeypatch.setattr("imagegen.fetch.cache.holding", late)
    assert not world.has(A)
    assert world.warnings == []


def test_a_url_is_remembered_without_its_query(world: World) -> None:
    world.put(A, url=SECRET_URL)
    record = UrlRecord(
        url=URL, sha256=sha256(A), size=len(A), etag='"1"', last_modified="yesterday", lock="/x.lock.json"
    )
    assert world.cache.find(SECRET_URL) == record
    assert world.cache.find(URL) is None
    assert [one.records for one in world.cache.files()] == [(record,)]
    assert not [file for file in world.folder.rglob("*") if file.is_file() and b"secret" in file.read_bytes()]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"url": 1}', json.dumps({"url": URL, "sha256": "x", "size": 1}), '{"a": "' + "x" * 20000 + '"}'],
)
def test_a_record_that_is_not_valid_is_none(world: World, text: str) -> None:
    world.put(A, url=URL)
    [file] = (world.folder / "urls").iterdir()
    file.write_text(text)
    assert world.cache.find(URL) is None
    assert [one.records for one in world.cache.files()] == [()]


def test_a_removed_file_takes_its_urls_along(world: World) -> None:
    world.put(A, url=URL)
    world.put(B, url=f"{URL}.b")
    assert world.cache.remove(sha256(A))
    assert [world.cache.find(url) is None for url in (URL, f"{URL}.b")] == [True, False]


def test_verify_hashes_every_file(world: World) -> None:
    world.put(A)
    _flip(world.put(B))
    assert world.cache.verify([sha256(A), sha256(B), sha256(C)]) == {sha256(A)}
    assert len(world.warnings) == 1


def test_other_files_in_its_folder_are_left_alone(world: World) -> None:
    world.put(A)
    (world.folder / "sha256" / "README").write_text("mine")
    world.open(0).trim()
    assert world.names() == {"README"}
    assert world.cache.files() == []


@pytest.mark.parametrize(("value", "limit"), [("", 20 * 2**30), ("0", 0), ("5", 5 * 2**30), ("999999", 999999 * 2**30)])
def test_the_limit(value: str, limit: int) -> None:
    assert size_limit({"IMAGEGEN_CACHE_GB": value}) == limit
    assert size_limit({}) == 20 * 2**30


def test_its_folder(tmp_path: Path) -> None:
    assert find_folder({}, tmp_path) == find_folder({"IMAGEGEN_CACHE_DIR": ""}, tmp_path) == tmp_path
    assert str(find_folder({"IMAGEGEN_CACHE_DIR": "/x/y"}, tmp_path)) == "/x/y"
    with pytest.raises(ConfigError, match="IMAGEGEN_CACHE_DIR is 'x/y', which is not an absolute path"):
        find_folder({"IMAGEGEN_CACHE_DIR": "x/y"}, tmp_path)


@pytest.mark.parametrize("value", ["-1", "1.5", "5GB", "1" * 7, "\n"])
def test_a_limit_that_is_no_number(value: str) -> None:
    with pytest.raises(ConfigError, match="is not a number of GiB"):
        size_limit({"IMAGEGEN_CACHE_GB": value})
