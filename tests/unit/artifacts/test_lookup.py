"""What of an old lock is kept, what is downloaded, and what is refused."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import io
import tarfile
import threading
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.artifacts import lookup
from imagegen.artifacts.download import Fetched
from imagegen.artifacts.lock import Lock, LockedArtifact
from imagegen.artifacts.lookup import lock_artifacts
from imagegen.artifacts.request import ArtifactRequest
from imagegen.console import Console
from imagegen.errors import ConfigError, ImagegenError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.resources.model import ArtifactForm


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def archive_of(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        made.addfile(info, io.BytesIO(content))
    return out.getvalue()


A = "https://a.test/a.msi?sig=secret"
# No ending: what a file is stands in its first bytes.
B = "https://b.test/artifactory/b/download"
GONE = "https://c.test/gone.msi"
WEB = {A: b"bytes of a", B: archive_of("./bin/b.exe", b"b")}
NEVER = "f" * 64


def asks(name: str, url: str, sha: str | None = None, form: ArtifactForm = "file") -> ArtifactRequest:
    return ArtifactRequest(name, url, sha, form, f"overrides.{name}", url)


def locked(url: str, data: bytes, members: dict[str, str] | None = None) -> LockedArtifact:
    return LockedArtifact(url=url, sha256=sha256(data), size=len(data), members=members)


NEW_A = locked(A, WEB[A])
NEW_B = locked(B, WEB[B], {"bin/b.exe": sha256(b"b")})


@dataclasses.dataclass
class World:
    cache: Path
    fetched: list[str]

    def lock(
        self, *requests: ArtifactRequest, old: Lock | None = None, refresh: bool = False
    ) -> dict[str, LockedArtifact]:
        return lock_artifacts(
            {request.name: request for request in requests},
            old,
            refresh=refresh,
            environ={},
            cache=self.cache,
            console=Console(io.StringIO(), plain=True),
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    here = World(tmp_path / "cache", [])

    def fetch(
        url: str,
        into: Path,
        *,
        expected_sha256: str | None,
        key: str,
        **_: Any,  # noqa: ANN401 - what is passed on to the network
    ) -> Fetched:
        here.fetched.append(url)
        if url not in WEB:
            raise ConfigError(f"{url} is gone", hint=key)
        into.write_bytes(WEB[url])
        if expected_sha256 not in (None, sha256(WEB[url])):
            raise VerificationError(f"{sha256(WEB[url])}, and {expected_sha256} was asked for")
        return Fetched(sha256(WEB[url]), len(WEB[url]))

    monkeypatch.setattr(lookup, "fetch", fetch)
    return here


OLD = Lock(artifacts={"a": locked(A, b"older bytes"), "b": NEW_B, "unused": locked("https://u.test/u", b"u")})
OTHER_URL = Lock(artifacts={"a": locked("https://a.test/older.msi", b"older bytes")})
SAME = Lock(artifacts={"a": NEW_A})


@pytest.mark.parametrize(
    ("old", "requests", "refresh", "expected", "downloads"),
    [
        (None, [asks("b", B, form="archive"), asks("a", A)], False, {"a": NEW_A, "b": NEW_B}, 2),
        (OLD, [asks("a", A), asks("b", B, form="archive")], False, {"a": OLD.artifacts["a"], "b": NEW_B}, 0),
        (OLD, [asks("a", A, sha256(b"older bytes"))], False, {"a": OLD.artifacts["a"]}, 0),
        (OLD, [asks("a", A, sha256(WEB[A]))], False, {"a": NEW_A}, 1),
        (OLD, [asks("a", A, sha256(WEB[A]))], True, {"a": NEW_A}, 1),
        (OTHER_URL, [asks("a", A)], False, {"a": NEW_A}, 1),
        (SAME, [asks("a", A)], True, {"a": NEW_A}, 1),
        (OLD, [asks("b", B)], False, {"b": locked(B, WEB[B])}, 1),
        (
            None,
            [asks("one", B, form="archive"), asks("two", B, form="archive")],
            False,
            {"one": NEW_B, "two": NEW_B},
            1,
        ),
        (None, [], False, {}, 0),
    ],
    ids=[
        "no lock",
        "kept",
        "kept as asked",
        "another digest asked for",
        "refresh with the new digest asked for",
        "another url",
        "refresh of the same bytes",
        "no longer an archive",
        "one download for two",
        "nothing",
    ],
)
def test_lock(
    world: World,
    old: Lock | None,
    requests: list[ArtifactRequest],
    refresh: bool,
    expected: dict[str, LockedArtifact],
    downloads: int,
) -> None:
    found = world.lock(*requests, old=old, refresh=refresh)
    assert found == expected
    assert list(found) == sorted(found)
    assert len(world.fetched) == downloads
    assert list(world.cache.glob("*")) == []


@pytest.mark.parametrize(
    ("act", "kind", "says"),
    [
        (lambda world: world.lock(asks("a", A, NEVER)), VerificationError, [sha256(WEB[A]), NEVER]),
        (
            lambda world: world.lock(asks("a", A), old=OLD, refresh=True),
            VerificationError,
            [
                "a: the bytes of https://a.test/a.msi have changed",
                sha256(WEB[A]),
                sha256(b"older bytes"),
                "overrides.a",
            ],
        ),
        (
            lambda world: world.lock(asks("a", A, form="archive")),
            VerificationError,
            ["a: https://a.test/a.msi is a file that begins with 'bytes of a', not an archive", "overrides.a"],
        ),
        (
            lambda world: world.lock(asks("a", A, NEVER), asks("b", B), asks("c", GONE)),
            VerificationError,
            ["2 of 3 downloads failed", NEVER, f"{GONE} is gone", "hint: overrides.c"],
        ),
    ],
    ids=["not what was asked for", "changed under the same url", "not an archive", "all that is wrong at once"],
)
def test_refused(world: World, act: Callable[[World], Any], kind: type[ImagegenError], says: list[str]) -> None:
    with pytest.raises(kind) as raised:
        act(world)
    text = " ".join((raised.value.message, raised.value.hint, *raised.value.details))
    assert [part for part in says if part not in text] == []
    assert "secret" not in text
    assert list(world.cache.glob("*")) == []


def test_what_a_killed_look_up_left_goes_with_the_next(world: World) -> None:
    killed = world.cache / "lock-killed"
    killed.mkdir(parents=True)
    (killed / ".held").touch()
    (killed / "artifact.part").write_bytes(b"gigabytes")
    world.lock(asks("a", A))
    assert list(world.cache.glob("*")) == []


def test_an_interrupt_stops_the_downloads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []

    def fetch(url: str, into: Path, *, stop: Any, **_: Any) -> Fetched:  # noqa: ANN401, ARG001 - as above
        stopped.append(stop.wait(10))
        into.write_bytes(WEB[A])
        return Fetched(sha256(WEB[A]), len(WEB[A]))

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lookup, "fetch", fetch)
    monkeypatch.setattr(lookup, "as_finished", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.lock(asks("a", A))
    assert stopped in ([True], [])
    assert list(world.cache.glob("*")) == []


def test_an_interrupt_between_two_starts_stops_the_download_that_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = concurrent.futures.ThreadPoolExecutor.submit
    begun, stopped = threading.Event(), []

    def fetch(_url: str, _into: Path, *, stop: Any, **_: Any) -> Fetched:  # noqa: ANN401 - as above
        begun.set()
        stopped.append(stop.wait(10))
        raise ConnectionError

    def interrupted(*arguments: Any) -> object:  # noqa: ANN401 - as submit's
        if begun.is_set():
            raise KeyboardInterrupt
        started = submit(*arguments)
        assert begun.wait(10)
        return started

    monkeypatch.setattr(lookup, "fetch", fetch)
    monkeypatch.setattr(concurrent.futures.ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.lock(asks("a", A), asks("b", B))
    assert stopped == [True]
