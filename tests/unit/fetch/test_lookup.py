"""What of an old lock is kept, what is downloaded, and what is refused."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import io
import tarfile
import threading
from typing import IO, TYPE_CHECKING, Any

import pytest

from imagegen.base import parallel
from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, ImagegenError, RefusedError, VerificationError
from imagegen.fetch.cache import Cache
from imagegen.fetch.credentials import Address, PrivateHosts
from imagegen.fetch.download import Download, Fetched, UnchangedError, Version
from imagegen.fetch.http import Answer, Web
from imagegen.fetch.lock import Lock, LockedArtifact
from imagegen.fetch.lookup import KEEP, Refresh, Sources, lock_artifacts
from imagegen.fetch.request import ArtifactRequest, PublishedDigest, TakenFile
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.steps.resource import ArtifactForm


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


def takes(name: str, url: str, *files: str, form: ArtifactForm = "file") -> ArtifactRequest:
    """An artifact of the config, from which these files are taken."""
    return dataclasses.replace(asks(name, url, form=form), files=tuple(TakenFile(file, file) for file in files))


def locked(url: str, data: bytes, members: dict[str, bytes] | None = None) -> LockedArtifact:
    """What a lock says of these bytes. The paths of an archive's members have `./` in it."""
    return LockedArtifact(
        url=url,
        sha256=sha256(data),
        size=len(data),
        members={path: sha256(one) for path, one in members.items()} if members else None,
        sizes={path: len(one) for path, one in members.items()} if members else None,
        dotted="all" if members else None,
        published="2026-10-31T12:00:00Z",
    )


ALL = Refresh(None)
NEW_A = locked(A, WEB[A])
NEW_B = locked(B, WEB[B], {"bin/b.exe": b"b"})


class World:
    """A web without a network, and a cache."""

    def __init__(self, folder: Path) -> None:
        self.cache = Cache(folder / "cache", 2**30, self.warn)
        self.web = dict(WEB)
        self.documents: dict[str, bytes] = {}
        self.modified = "Sat, 31 Oct 2026 12:00:00 GMT"
        self.downloaded: list[str] = []
        self.unchanged: list[str] = []
        self.asked: list[str] = []
        self.addresses: list[Address | None] = []
        """Of each download, if it is a private one."""
        self.private: PrivateHosts | None = None
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def lock(
        self,
        *requests: ArtifactRequest,
        old: Lock | None = None,
        refresh: Refresh = KEEP,
        needs_time: bool = False,
    ) -> dict[str, LockedArtifact]:
        console = Console(io.StringIO(), plain=True)
        sources = Sources(
            web=Web(environ={}),
            cache=self.cache,
            ask=self.ask,
            console=console,
            private=self.private,
            needs_time=needs_time,
            lock="/x.lock.json",
        )
        return lock_artifacts({request.name: request for request in requests}, old, sources, refresh)

    def ask(self, url: str, _headers: object, _authorization: str) -> Answer:
        self.asked.append(url)
        return Answer(200, {}, self.documents[url]) if url in self.documents else Answer(404, {}, b"")

    def parts(self) -> list[str]:
        return [path.name for path in self.cache.folder.glob("*") if path.name not in ("sha256", "urls")]

    def cached(self) -> set[str]:
        return {one.sha256 for one in self.cache.files()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    here = World(tmp_path)

    def fill(download: Download, file: IO[bytes]) -> Fetched:
        url = download.url
        if url not in here.web:
            raise ConfigError(f"{url} is gone", hint=download.key)
        data = here.web[url]
        version = Version(f'"{sha256(data)[:8]}"', here.modified)
        if download.known == version:
            here.unchanged.append(url)
            raise UnchangedError
        here.downloaded.append(url)
        here.addresses.append(download.address() if download.address else None)
        file.write(data)
        return Fetched(sha256(data), len(data), version)

    monkeypatch.setattr(Download, "fill", fill)
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
        (None, [takes("a", A, "a.txt"), takes("b", B, "b.exe")], False, {"a": NEW_A, "b": NEW_B}, 2),
        (OLD, [takes("a", A, "a.txt"), takes("b", B, "b.exe")], False, {"a": OLD.artifacts["a"], "b": NEW_B}, 0),
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
        "one file, packed or not",
        "one file of an old lock",
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
    found = world.lock(*requests, old=old, refresh=ALL if refresh else KEEP)
    assert found == expected
    assert list(found) == sorted(found)
    assert len(world.downloaded) == downloads
    assert world.parts() == []


@pytest.mark.parametrize(
    ("act", "kind", "says"),
    [
        (lambda world: world.lock(asks("a", A, NEVER)), VerificationError, [sha256(WEB[A]), NEVER]),
        (
            lambda world: world.lock(asks("a", A), old=OLD, refresh=ALL),
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
            lambda world: world.lock(takes("a", A, "a.txt", "b.txt", form="archive"), old=SAME),
            VerificationError,
            ["a file that begins with 'bytes of a', not an archive (.zip, .tar.gz or .tar) with a.txt, b.txt"],
        ),
        (
            lambda world: world.lock(takes("b", B, "c.exe")),
            VerificationError,
            [f"b: the archive {B} does not have c.exe: it has bin/b.exe", "overrides.b"],
        ),
        (
            lambda world: world.lock(asks("a", A, NEVER), asks("b", B), asks("c", GONE)),
            VerificationError,
            ["2 of 3 downloads failed", NEVER, f"{GONE} is gone", "hint: overrides.c"],
        ),
    ],
    ids=[
        "not what was asked for",
        "changed under the same url",
        "not an archive",
        "not an archive, by an old lock",
        "not in the archive",
        "all that is wrong at once",
    ],
)
def test_refused(world: World, act: Callable[[World], Any], kind: type[ImagegenError], says: list[str]) -> None:
    with pytest.raises(kind) as raised:
        act(world)
    text = " ".join((raised.value.message, raised.value.hint, *raised.value.details))
    assert [part for part in says if part not in text] == []
    assert "secret" not in text
    assert world.parts() == []


PUBLIC = "https://dl.example/tool/v1/tool.exe"
MIRRORS = ["https://one.example/dl.example/tool/v1/tool.exe", "https://two.example/x/dl.example/tool/v1/tool.exe"]
PLACES = [PUBLIC, *MIRRORS]


def at(place: str, sha: str | None = None, name: str = "tool") -> ArtifactRequest:
    """A release at its public URL, or at that of a mirror."""
    return dataclasses.replace(asks(name, place, sha), published=PUBLIC)


@pytest.mark.parametrize("name", ["tool", "renamed"])
@pytest.mark.parametrize("now", PLACES)
@pytest.mark.parametrize("before", PLACES)
def test_the_same_release_has_the_same_bytes_at_every_place(world: World, before: str, now: str, name: str) -> None:
    old = Lock(artifacts={"tool": locked(before, b"right")})
    world.web = {now: b"other"}
    with pytest.raises(VerificationError) as refused:
        world.lock(at(now, name=name), old=old, refresh=Refresh(frozenset({"tool", "renamed"}), accepts_own=True))
    assert sha256(b"other") in refused.value.message
    assert sha256(b"right") in refused.value.message
    assert ("has other bytes than" if before != now else "have changed") in refused.value.message
    assert f"write this sha256 beside overrides.{name}" in refused.value.hint
    accepted = world.lock(at(now, sha256(b"other")), old=old)
    assert accepted["tool"].sha256 == sha256(b"other")
    world.web = {now: b"right"}
    assert world.lock(at(now), old=old)["tool"].sha256 == sha256(b"right")


@pytest.mark.parametrize(
    "other",
    [
        "https://dl.example/tool/v2/tool.exe",
        "https://one.example/other-dl.example/tool/v1/tool.exe",
        "https://one.example/tool/v1/tool.exe",
    ],
)
def test_another_release_may_have_other_bytes(world: World, other: str) -> None:
    world.web = {MIRRORS[0]: b"new"}
    old = Lock(artifacts={"tool": locked(other, b"old")})
    assert world.lock(at(MIRRORS[0]), old=old)["tool"].sha256 == sha256(b"new")


OWN_PLACES = [*PLACES, "https://own.example/signed.zip"]


def own_at(place: str, sha: str | None = None, name: str = "tool") -> ArtifactRequest:
    """A release at a URL of the config."""
    return dataclasses.replace(at(place, sha, name), own=True)


@pytest.mark.parametrize("now", OWN_PLACES)
@pytest.mark.parametrize("before", OWN_PLACES)
def test_a_release_at_a_url_of_the_config_keeps_its_digest_unless_it_is_upgraded(
    world: World, before: str, now: str
) -> None:
    """Whether the operator or a mirror chose the bytes cannot be seen, so the operator says it."""
    world.web = {before: b"right"}
    old = Lock(artifacts=world.lock(own_at(before)))
    world.web = {now: b"other"}
    if before == now:
        assert world.lock(own_at(now), old=old) == old.artifacts
    else:
        with pytest.raises(VerificationError) as refused:
            world.lock(own_at(now), old=old)
        assert f"{now} has other bytes than {before}, which is locked: sha256 " in refused.value.message
        assert refused.value.hint.endswith("to accept these, run `imagegen lock --upgrade tool`")
    for upgraded in (Refresh(frozenset({"tool"}), accepts_own=True), Refresh(None, accepts_own=True)):
        assert world.lock(own_at(now), old=old, refresh=upgraded)["tool"].sha256 == sha256(b"other")
    assert world.lock(own_at(now, sha256(b"other")), old=old)["tool"].sha256 == sha256(b"other")


def test_all_other_bytes_are_named_at_once_with_one_command(world: World) -> None:
    names = ["a-tool", "b-tool"]
    old = Lock(artifacts={name: locked(PUBLIC, b"right") for name in (*names, "tool")})
    world.web = {**dict.fromkeys(OWN_PLACES, b"other")}
    with pytest.raises(VerificationError) as refused:
        world.lock(*(own_at(OWN_PLACES[-1], name=name) for name in names), at(MIRRORS[0]), old=old)
    assert refused.value.message == "3 artifacts have other bytes than the lock says"
    assert [line.partition(":")[0] for line in refused.value.details] == [*names, "tool"]
    assert refused.value.hint.endswith(
        "run `imagegen lock --upgrade a-tool b-tool` and write the new sha256 beside overrides.tool"
    )


def test_another_release_at_a_url_of_the_config_may_have_other_bytes(world: World) -> None:
    world.web = dict.fromkeys(OWN_PLACES, b"right")
    old = Lock(artifacts=world.lock(own_at(OWN_PLACES[-1])))
    assert old.artifacts["tool"].release == PUBLIC
    world.web = {MIRRORS[0]: b"new"}
    now = dataclasses.replace(own_at(MIRRORS[0]), published="https://dl.example/tool/v2/tool.exe")
    assert world.lock(now, old=old)["tool"].sha256 == sha256(b"new")


@pytest.mark.parametrize(
    ("now", "is_same"),
    [("https://mirror.example/own.example/agent-1.exe", True), ("https://own.example/agent-2.exe", False)],
)
def test_a_program_without_a_known_release_is_told_by_the_name_of_its_file(
    world: World, now: str, is_same: bool
) -> None:
    old = Lock(artifacts={"own-1": locked("https://own.example/agent-1.exe", b"right")})
    world.web = {now: b"other"}
    request = dataclasses.replace(asks("own-1", now), own=True)
    if not is_same:
        assert world.lock(request, old=old)["own-1"].sha256 == sha256(b"other")
        return
    with pytest.raises(VerificationError):
        world.lock(request, old=old)


def test_a_copy_of_a_locked_url_in_a_mirror_is_the_same_release(world: World) -> None:
    """Also if an older version of imagegen, which recorded no releases, wrote the lock."""
    old = Lock(artifacts={"tool": locked(OWN_PLACES[-1], b"right")})
    copy = f"https://mirror.example/files/{OWN_PLACES[-1].removeprefix('https://')}"
    world.web = {copy: b"other"}
    with pytest.raises(VerificationError):
        world.lock(own_at(copy), old=old)


def test_a_kept_entry_of_an_older_lock_learns_its_release(world: World) -> None:
    old = Lock(artifacts={"tool": locked(OWN_PLACES[-1], b"right")})
    assert world.lock(own_at(OWN_PLACES[-1]), old=old)["tool"].release == PUBLIC
    assert world.downloaded == []


def test_downloads_run_at_the_same_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two waits for the other."""
    together = threading.Barrier(2)

    def fill(download: Download, file: IO[bytes]) -> Fetched:
        together.wait(HANG_S)
        file.write(WEB[download.url])
        return Fetched(sha256(WEB[download.url]), len(WEB[download.url]))

    monkeypatch.setattr(Download, "fill", fill)
    assert world.lock(*BOTH).keys() == {"a", "b"}


def test_a_fault_of_imagegen_is_not_hidden_by_another_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(download: Download, _file: IO[bytes]) -> Fetched:
        raise RefusedError("no answer") if download.url == A else ZeroDivisionError

    monkeypatch.setattr(Download, "fill", fill)
    with pytest.raises(ZeroDivisionError):
        world.lock(*BOTH)


def test_what_a_killed_look_up_left_goes_with_the_next(world: World) -> None:
    killed = world.cache.folder / "parts-killed"
    killed.mkdir(parents=True)
    (killed / ".held").touch()
    (killed / "0123").write_bytes(b"gigabytes")
    world.lock(asks("a", A))
    assert world.parts() == []


def test_an_interrupt_stops_the_downloads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []

    def fill(download: Download, file: IO[bytes]) -> Fetched:
        stopped.append(download.web.stop.wait(HANG_S))
        file.write(WEB[A])
        return Fetched(sha256(WEB[A]), len(WEB[A]))

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Download, "fill", fill)
    monkeypatch.setattr(parallel, "as_finished", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.lock(asks("a", A))
    assert stopped in ([True], [])
    assert world.parts() == []


def test_an_interrupt_between_two_starts_stops_the_download_that_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = concurrent.futures.ThreadPoolExecutor.submit
    begun, stopped = threading.Event(), []

    def fill(download: Download, _file: IO[bytes]) -> Fetched:
        begun.set()
        stopped.append(download.web.stop.wait(HANG_S))
        raise ConnectionError

    def interrupted(*arguments: Any) -> object:  # noqa: ANN401 - as submit's
        if begun.is_set():
            raise KeyboardInterrupt
        started = submit(*arguments)
        assert begun.wait(HANG_S)
        return started

    monkeypatch.setattr(Download, "fill", fill)
    monkeypatch.setattr(concurrent.futures.ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.lock(asks("a", A), asks("b", B))
    assert stopped == [True]


BOTH = [asks("a", A), asks("b", B, form="archive")]


def test_a_second_lock_of_the_day_downloads_nothing(world: World) -> None:
    first = world.lock(*BOTH)
    assert world.lock(*BOTH) == first
    assert (sorted(world.downloaded), sorted(world.unchanged)) == ([A, B], [A, B])
    assert world.cached() == {sha256(WEB[A]), sha256(WEB[B])}


def test_a_changed_file_of_the_server_is_downloaded_again(world: World) -> None:
    world.lock(asks("a", A))
    world.web[A] = b"new bytes of a"
    assert world.lock(asks("a", A))["a"].sha256 == sha256(b"new bytes of a")
    assert world.downloaded == [A, A]


@pytest.mark.parametrize("known", [asks("a", A, sha256(WEB[A])), asks("a", A)], ids=["by the config", "by the lock"])
def test_a_known_digest_needs_no_server(world: World, known: ArtifactRequest) -> None:
    first = world.lock(asks("a", A))
    world.web.clear()
    other_form = Lock(artifacts={"a": first["a"].model_copy(update={"members": {"x": NEVER}})})
    assert world.lock(known, old=other_form) == first
    assert (world.downloaded, world.unchanged) == ([A], [])


def test_a_damaged_file_is_downloaded_again_and_named(world: World) -> None:
    world.lock(asks("a", A))
    file = world.cache.folder / "sha256" / sha256(WEB[A])
    file.write_bytes(b"bytes of b")
    assert world.lock(asks("a", A))["a"] == NEW_A
    assert world.downloaded == [A, A]
    assert world.warnings == [f"{file} has other bytes than its name says: it is removed"]


def test_only_the_named_entries_are_looked_up_again(world: World) -> None:
    old = Lock(artifacts=world.lock(*BOTH))
    world.lock(*BOTH, old=old, refresh=Refresh(frozenset({"b"})))
    assert world.unchanged == [B]


OWN = dataclasses.replace(asks("a", A), own=True)


@pytest.mark.parametrize(
    ("request_", "refresh", "is_accepted"),
    [
        (OWN, Refresh(None, accepts_own=True), True),
        (OWN, Refresh(frozenset({"a"}), accepts_own=True), True),
        (asks("a", A), Refresh(None, accepts_own=True), False),
        (OWN, ALL, False),
        (asks("a", A), Refresh(None, accepts_own=True, accepts_public=True), True),
    ],
)
def test_whose_bytes_may_change(world: World, request_: ArtifactRequest, refresh: Refresh, is_accepted: bool) -> None:
    try:
        found = world.lock(request_, old=OLD, refresh=refresh)
    except VerificationError:
        assert not is_accepted
    else:
        assert is_accepted
        assert found["a"].sha256 == sha256(WEB[A])


@pytest.mark.parametrize(
    ("modified", "released", "published"),
    [
        ("Sat, 31 Oct 2026 12:00:00 GMT", "", "2026-10-31T12:00:00Z"),
        ("Sat, 31 Oct 2026 12:00:00 +0200", "2026-01-01", "2026-10-31T10:00:00Z"),
        ("Sat, 31 Oct 2026 12:00:00", "", "2026-10-31T12:00:00Z"),
        ("", "2026-01-01", "2026-01-01T00:00:00Z"),
        ("", "", None),
        ("yesterday", "", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", "", None),
        ("Mon, 01 Jan 1900 00:00:00 GMT", "2026-01-01", "2026-01-01T00:00:00Z"),
    ],
)
def test_when_a_file_was_published(world: World, modified: str, released: str, published: str | None) -> None:
    world.modified = modified
    found = world.lock(dataclasses.replace(asks("a", A), released=released))
    assert found["a"].published == published


def test_an_entry_without_a_time_is_looked_up_where_the_time_counts(world: World) -> None:
    old = Lock(artifacts={"a": NEW_A.model_copy(update={"published": None})})
    assert world.lock(asks("a", A), old=old) == old.artifacts
    assert world.lock(asks("a", A, sha256(WEB[A])), old=old, needs_time=True) == old.artifacts
    assert world.downloaded == []
    assert world.lock(asks("a", A), old=old, needs_time=True) == {"a": NEW_A}
    assert world.downloaded == [A]


def test_a_published_digest_confirms_each_artifact_of_its_url(world: World) -> None:
    address = "https://b.test/artifactory/b/download.sha256"
    world.documents[address] = sha256(WEB[B]).encode()
    digest = PublishedDigest(address, required=True)
    requests = [dataclasses.replace(asks(name, B, form="archive"), digest=digest) for name in ("one", "two")]
    found = world.lock(*requests)
    assert [artifact.confirmed for artifact in found.values()] == [[address], [address]]
    assert world.asked == [address]


@pytest.mark.parametrize("is_private", [True, False])
def test_a_published_digest_is_as_private_as_its_file(world: World, *, is_private: bool) -> None:
    """With a query, so that the address has it and the lock does not."""
    ways = {"b.test" if is_private else "a.test": {"query_env": "A_SAS"}}
    world.private = PrivateHosts(ways, {"A_SAS": "sig=secret"}, lambda *_: {})
    world.documents = {f"{B}.sha256?sig=secret" if is_private else f"{B}.sha256": sha256(WEB[B]).encode()}
    found = world.lock(dataclasses.replace(asks("b", B, form="archive"), own=True))
    assert found["b"].confirmed == [f"{B}.sha256"]
    assert [address is not None for address in world.addresses] == [is_private]
    assert all(("?sig=secret" in url) is is_private for url in world.asked)


def test_a_list_of_digests_that_is_not_there_is_asked_for_once(world: World) -> None:
    folder = "https://own.test/folder"
    names = [f"tool-{number}" for number in range(5)]
    world.web = {f"{folder}/{name}.exe": name.encode() for name in names}
    world.lock(*(dataclasses.replace(asks(name, f"{folder}/{name}.exe"), own=True) for name in names))
    # As many files as are looked up at the same time may ask before the first of them knows.
    assert {world.asked.count(f"{folder}/{name}") <= 4 for name in ("SHA256SUMS", "sha256sums.txt")} == {True}
    assert [world.asked.count(f"{folder}/{name}.exe.sha256") for name in names] == [1] * 5


def test_a_variable_that_is_not_set_is_one_error_before_the_first_download(world: World) -> None:
    world.private = PrivateHosts({"b.test": {"token_env": "B_TOKEN"}}, {}, lambda *_: {})
    both = (asks("a", A), asks("b", B, form="archive"), asks("c", f"{B}/c"))
    with pytest.raises(ConfigError) as refused:
        world.lock(*both)
    assert refused.value.message == (
        "artifacts.credentials: B_TOKEN must have the credentials of b.test, and is not set"
    )
    assert (world.downloaded, refused.value.details) == ([], ())
    assert world.lock(asks("a", A)).keys() == {"a"}
