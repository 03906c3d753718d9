"""A lock that is wrong about the files in the cache is refused before a build: the machine would refuse it later."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ExitCode, VerificationError
from imagegen.fetch.cache import Cache
from imagegen.fetch.drift import verify_contents
from imagegen.fetch.http import Answer, Web
from imagegen.fetch.lock import LockedArtifact
from imagegen.fetch.lookup import Sources
from imagegen.fetch.request import ArtifactRequest

if TYPE_CHECKING:
    from pathlib import Path

A, B = "https://a.test/a.exe", "https://b.test/b.zip"
REQUESTS = {
    "a": ArtifactRequest("a", A, None, "file", "overrides.a", A),
    "b": ArtifactRequest("b", B, None, "archive", "overrides.b", B),
}
MEMBERS = {"bin/b.exe": b"MZ b", "bin/c.dll": b"MZ c"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as held:
        for name, data in MEMBERS.items():
            held.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


FILES = {"a": b"MZ a", "b": archive()}
LOCKED = {
    "a": LockedArtifact(url=A, sha256=sha(FILES["a"]), size=4),
    "b": LockedArtifact(
        url=B,
        sha256=sha(FILES["b"]),
        size=len(FILES["b"]),
        members={name: sha(data) for name, data in MEMBERS.items()},
        sizes={name: len(data) for name, data in MEMBERS.items()},
    ),
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Nothing but a cache with both files."""
    cache = Cache(tmp_path / "cache", 2**30, pytest.fail)
    with cache.opened() as parts:
        for name, data in FILES.items():
            part = parts / name
            part.write_bytes(data)
            with cache.add(part, sha(data)):
                pass
    console, ask = Console(io.StringIO(), plain=True), lambda *_: Answer(404, {}, b"")
    return Sources(
        web=Web(environ={}), cache=cache, ask=ask, console=console, lock="my.lock.json", upgrade="imagegen relock"
    )


def test_a_lock_that_is_right_is_taken(sources: Sources) -> None:
    verify_contents(REQUESTS, LOCKED, sources)


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("a", {"size": 5}, "a has 4 bytes, but the lock says 5"),
        (
            "b",
            {"members": {"bin/b.exe": sha(b"MZ b"), "bin/c.dll": sha(b"MZ d")}},
            f"b: bin/c.dll has sha256 {sha(b'MZ c')}, but the lock says {sha(b'MZ d')}",
        ),
        ("b", {"sizes": {"bin/b.exe": 4, "bin/c.dll": 5}}, "b: bin/c.dll has 4 bytes, but the lock says 5"),
        ("b", {"dotted": "all"}, "b has ./ before none of its paths, but the lock says all"),
        ("b", {"members": {"bin/b.exe": sha(b"MZ b")}}, "b: bin/c.dll is in the archive, but not in the lock"),
        (
            "b",
            {"members": {**(LOCKED["b"].members or {}), "d": sha(b"")}},
            "b: d is in the lock, but not in the archive",
        ),
    ],
    ids=["size", "digest", "size of a member", "paths with a dot", "member left out", "member added"],
)
def test_a_lock_that_is_wrong_about_a_file_is_refused(
    sources: Sources, name: str, change: dict[str, Any], line: str
) -> None:
    wrong = LOCKED | {name: LOCKED[name].model_copy(update=change)}
    with pytest.raises(VerificationError) as raised:
        verify_contents(REQUESTS, wrong, sources)
    assert raised.value.exit_code is ExitCode.VERIFICATION
    assert raised.value.message == "my.lock.json is wrong about 1 file"
    assert raised.value.details == (line,)
    assert (raised.value.hint or "").endswith(f"`imagegen relock {name}` reads the files again")
    sources.cache.remove(LOCKED[name].sha256)
    # Nothing is downloaded for this. The machine compares it too.
    verify_contents(REQUESTS, wrong, sources)


def test_of_many_faults_the_first_are_shown(sources: Sources) -> None:
    members = {**(LOCKED["b"].members or {}), **{f"x{number:02}": sha(b"") for number in range(30)}}
    with pytest.raises(VerificationError) as raised:
        verify_contents(REQUESTS, LOCKED | {"b": LOCKED["b"].model_copy(update={"members": members})}, sources)
    assert (len(raised.value.details), raised.value.details[-1]) == (21, "and 10 more")
