"""`imagegen artifacts list`, `verify` and `gc`: what they print about the cache, and what they remove."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from imagegen.fetch.cache import Cache
from imagegen.fetch.download import Fetched, Version

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

OLD, NEW = b"old " * 500_000, b"new " * 250_000
URL = "https://a.example/old.zip"
NOW = 1_800_000_000.0


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(time, "time", lambda: NOW)
    found = Cache(tmp_path / "imagegen" / "artifacts", 2**30, print)
    for data, age in ((OLD, 40 * 86400), (NEW, 3600)):
        with found.opened() as parts:
            part = parts / "part"
            part.write_bytes(data)
            with found.add(part, sha256(data)) as file:
                os.utime(file, (NOW - age, NOW - age))
    found.record(f"{URL}?sig=secret", Fetched(sha256(OLD), len(OLD), Version()), "/home/me/x.lock.json")
    return found


def names(cache: Cache) -> list[str]:
    return [one.sha256 for one in cache.files()]


@pytest.mark.usefixtures("cache")
def test_list(run: Run) -> None:
    assert run("artifacts", "list") == (
        0,
        f"{sha256(OLD)}     2.0 MB  used 40 days ago\n"
        f"  {URL} for /home/me/x.lock.json\n"
        f"{sha256(NEW)}     1.0 MB  used 1h00m ago\n"
        "2 files, 3.0 MB\n",
        "",
    )
    code, out, _ = run("artifacts", "list", "--format", "json")
    assert code == 0
    assert json.loads(out)[0] == {
        "sha256": sha256(OLD),
        "size": len(OLD),
        "used": "2026-12-06T08:00:00Z",
        "from": [{"url": URL, "lock": "/home/me/x.lock.json"}],
    }


def test_an_empty_cache_is_no_error(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("artifacts", "list")[:2] == (0, "0 files, 0 kB\n")
    assert run("artifacts", "verify")[:2] == (0, "0 files verified, 0 kB\n")
    assert run("artifacts", "gc", "--all", "--delete")[0] == 0
    assert [*tmp_path.iterdir()] == []


def test_verify_removes_what_is_damaged_and_ends_with_4(run: Run, cache: Cache) -> None:
    assert run("artifacts", "verify")[:2] == (0, "2 files verified, 3.0 MB\n")
    (cache.folder / "sha256" / sha256(OLD)).write_bytes(b"x" + OLD[1:])
    code, out, err = run("artifacts", "verify")
    assert (code, out) == (4, "1 file verified, 3.0 MB\n")
    assert "1 file of the cache had other bytes\n" in err
    assert sha256(OLD) in err
    assert names(cache) == [sha256(NEW)]


def test_a_file_that_another_run_removes_meanwhile_is_not_damaged(
    run: Run, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cache.files()
    monkeypatch.setattr(Cache, "files", lambda _: files)
    cache.remove(sha256(OLD))
    code, out, err = run("artifacts", "verify")
    assert (code, out.partition(",")[0], err) == (0, "1 file verified", "")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_neither_verified_nor_removed(run: Run, cache: Cache, make: Callable[[Path], None]) -> None:
    make(cache.folder / "sha256" / ("a" * 64))
    assert run("artifacts", "verify")[:2] == (0, "2 files verified, 3.0 MB\n")
    assert run("artifacts", "gc", "--all", "--delete")[0] == 0


@pytest.mark.parametrize(
    ("words", "going"),
    [
        (("--all",), [OLD, NEW]),
        (("--older-than", "30d"), [OLD]),
        (("--older-than", "6w"), []),
        (("--older-than", "0h"), [OLD, NEW]),
        (("--to-size", "5GB"), []),
        (("--to-size", "2MB"), [OLD]),
        (("--to-size", "0MB"), [OLD, NEW]),
    ],
)
def test_gc_lists_and_with_delete_removes(run: Run, cache: Cache, words: tuple[str, ...], going: list[bytes]) -> None:
    code, out, err = run("artifacts", "gc", *words)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [sha256(data) for data in going]
    assert "the same command with --delete removes them" in err
    assert names(cache) == [sha256(OLD), sha256(NEW)]
    code, out, err = run("artifacts", "gc", *words, "--delete", "--format", "json")
    assert code == 0
    assert [one["sha256"] for one in json.loads(out)] == [sha256(data) for data in going]
    assert f"removed {len(going)} file" in err
    assert names(cache) == [sha256(data) for data in (OLD, NEW) if data not in going]


def test_gc_leaves_what_is_used_and_says_so(run: Run, cache: Cache) -> None:
    with cache.use(sha256(OLD)):
        code, _, err = run("artifacts", "gc", "--all", "--delete")
    assert code == 7
    assert "1 file could not be removed: another imagegen uses them" in err
    assert "removed 1 file, 1.0 MB" in err
    assert names(cache) == [sha256(OLD)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "choose one of --older-than, --to-size and --all"),
        (("--all", "--to-size", "5GB"), "choose one of --older-than, --to-size and --all"),
        (("--older-than", "30"), "'30' is not a number with a unit (d, h, w), such as 5d"),
        (("--older-than", "5GB"), "'5GB' is not a number with a unit (d, h, w), such as 5d"),
        (("--to-size", "-1GB"), "'-1GB' is not a number with a unit (GB, MB, TB), such as 5GB"),
        (("--to-size", "1.5GB"), "is not a number with a unit"),
    ],
)
def test_gc_needs_one_reason(run: Run, cache: Cache, words: tuple[str, ...], says: str) -> None:
    code, _, err = run("artifacts", "gc", *words, "--delete")
    assert (code, says in err) == (2, True), err
    assert len(names(cache)) == 2
