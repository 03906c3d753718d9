"""Signatures are checked when an artifact is looked up. The lock has what was found; later, facts or bytes decide."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from typing import IO, TYPE_CHECKING

import pytest

from imagegen.authenticode.signer import parse_signer
from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, VerificationError
from imagegen.fetch.cache import Cache
from imagegen.fetch.download import Download, Fetched
from imagegen.fetch.http import Answer, Web
from imagegen.fetch.lock import WHOLE_FILE, Lock, LockedIssuer
from imagegen.fetch.lookup import KEEP, Refresh, Sources, lock_artifacts, verify_signatures
from imagegen.fetch.request import ArtifactRequest
from imagegen.trust.judge import SignaturePolicy
from imagegen.trust.policy import SignatureRequest
from imagegen.trust.record import SignatureError
from tests.authenticode.pki import LATER, make_root, make_signer, pki
from tests.authenticode.signing import sign_pe
from tests.authenticode.support import changed, fixture, trust

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from imagegen.authenticode.model import Trust
    from imagegen.fetch.lock import LockedArtifact

A, B = "https://a.test/a.exe", "https://b.test/b.zip"
PROGRAM = fixture("program.exe")
SIGNED = sign_pe(PROGRAM, pki().signer)
SOMEBODYS = sign_pe(PROGRAM, make_signer(pki().ca, "C=US, CN=Somebody"))


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as held:
        for name, data in files.items():
            held.writestr(zipfile.ZipInfo(name.replace("_", ".")), data)
    return buffer.getvalue()


GOOD = {A: SIGNED, B: archive(b_exe=SIGNED, read_me=b"text", other_exe=PROGRAM)}
REQUESTS = {
    "a": ArtifactRequest("a", A, None, "file", "overrides.a", A),
    "b": ArtifactRequest("b", B, None, "archive", "overrides.b", B),
}


class Some:
    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        del members
        return {path: frozenset({path or "a.exe"}) for path in self._paths}


def wanted(*signers: str, b: tuple[str, ...] = ("b.exe", "read.me")) -> dict[str, SignatureRequest]:
    rules = tuple(map(parse_signer, signers))
    used = {"a": Some(WHOLE_FILE), "b": Some(*b)}
    return {name: SignatureRequest(name, used[name], rules, "signers", f"overrides.{name}") for name in used}


class World:
    """A web without a network, a cache, and a trust that counts how often it was made."""

    def __init__(self, folder: Path) -> None:
        self.cache = Cache(folder / "cache", 2**30, lambda _: None)
        self.web = dict(GOOD)
        self.downloaded: list[str] = []
        self.trusts = 0
        self.trust = trust()

    def load(self) -> Trust:
        self.trusts += 1
        return self.trust

    def sources(self, requests: dict[str, SignatureRequest], roots: frozenset[str] | None = None) -> Sources:
        console = Console(io.StringIO(), plain=True)
        policy = SignaturePolicy(requests, roots, self.load) if requests else None
        return Sources(
            web=Web(environ={}),
            cache=self.cache,
            ask=lambda *_: Answer(404, {}, b""),
            console=console,
            signatures=policy,
        )

    def lock(
        self,
        requests: dict[str, SignatureRequest],
        old: Lock | None = None,
        refresh: Refresh = KEEP,
        roots: frozenset[str] | None = None,
    ) -> dict[str, LockedArtifact]:
        return lock_artifacts(REQUESTS, old, self.sources(requests, roots), refresh)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    here = World(tmp_path)

    def fill(download: Download, file: IO[bytes]) -> Fetched:
        if download.url not in here.web:
            raise ConfigError(f"{download.url} is gone", hint="look elsewhere")
        here.downloaded.append(download.url)
        data = here.web[download.url]
        file.write(data)
        return Fetched(hashlib.sha256(data).hexdigest(), len(data))

    monkeypatch.setattr(Download, "fill", fill)
    return here


def test_the_lock_has_what_was_found(world: World) -> None:
    found = world.lock(wanted("CN=Example Inc"))
    assert {name: sorted(entry.signed or {}) for name, entry in found.items()} == {"a": [WHOLE_FILE], "b": ["b.exe"]}
    assert found["b"].not_programs == ["read.me"]
    assert found["a"].signed is not None
    assert found["a"].signed[WHOLE_FILE].signer == "CN=Example Inc, O=Example Inc, C=US"
    assert world.trusts == 1


def test_without_a_policy_nothing_is_verified(world: World) -> None:
    world.web[A] = b"MZ of nobody"
    assert [entry.signed for entry in world.lock({}).values()] == [None, None]
    assert world.trusts == 0


def test_all_that_is_wrong_stands_in_one_error(world: World) -> None:
    world.web |= {A: PROGRAM, B: archive(b_exe=SOMEBODYS, read_me=b"text")}
    with pytest.raises(SignatureError) as raised:
        world.lock(wanted("CN=Example Inc"))
    assert raised.value.message == "the signature of 2 files is not as the config requires"
    assert [line.split(" ")[:4] for line in raised.value.details if "hint" not in line] == [
        ["a", "is", "not", "signed,"],
        ["b:", "b.exe", "is", "signed"],
    ]


def test_beside_another_error_both_are_said(world: World) -> None:
    world.web = {A: PROGRAM}
    with pytest.raises(VerificationError) as raised:
        world.lock(wanted("CN=Example Inc"))
    assert raised.value.message == "2 of 2 downloads failed"
    assert raised.value.details == (
        "the signature of 1 file is not as the config requires",
        "a is not signed, but signers requires CN=Example Inc",
        "  hint: sign it, or set overrides.a to a signed copy",
        f"{B} is gone",
        "  hint: look elsewhere",
    )


def test_facts_that_satisfy_the_policy_need_no_bytes(world: World) -> None:
    old = Lock(artifacts=world.lock(wanted("CN=Example Inc")))
    world.downloaded.clear()
    for signers in (("CN=Example Inc",), ("issuer: CN=Example Code CA",), ("O=Example Inc", "microsoft"), ()):
        assert world.lock(wanted(*signers), old) == old.artifacts
    assert (world.downloaded, world.trusts) == ([], 1)


def test_another_signer_is_noticed_without_a_download(world: World) -> None:
    old = Lock(artifacts=world.lock(wanted("CN=Example Inc")))
    world.web.clear()
    with pytest.raises(SignatureError, match="the signature of 2 files"):
        world.lock(wanted("CN=Other"), old)
    assert world.trusts == 1


@pytest.mark.parametrize("case", ["never checked", "another file", "another root"])
def test_facts_that_are_not_enough_are_completed_from_the_cache(world: World, case: str) -> None:
    before = world.lock({} if case == "never checked" else wanted("CN=Example Inc"))
    world.downloaded.clear()
    world.web.clear()
    old = Lock(artifacts=before)
    if case == "another file":
        with pytest.raises(SignatureError, match="1 file is") as raised:
            world.lock(wanted("CN=Example Inc", b=("other.exe",)), old)
        assert "b: other.exe is not signed" in raised.value.details[0]
    elif case == "another root":
        world.trust = trust(make_root())
        with pytest.raises(SignatureError, match="2 files") as raised:
            world.lock(wanted("CN=Example Inc"), old, roots=frozenset({"ab" * 32}))
        assert "untrusted" in raised.value.details[0]
    else:
        assert all(entry.signed for entry in world.lock(wanted("CN=Example Inc"), old).values())
    assert world.downloaded == []


def test_a_lock_is_not_trusted_at_a_build(world: World) -> None:
    requests = wanted("CN=Example Inc")
    good = world.lock(requests)
    verify_signatures(REQUESTS, good, world.sources(requests))
    # Somebody wrote other bytes into the lock, and left the signers as they were.
    world.web[A] = PROGRAM
    forged = good | {"a": good["a"].model_copy(update={"sha256": hashlib.sha256(PROGRAM).hexdigest()})}
    assert world.lock(requests, Lock(artifacts=forged)) == forged
    with pytest.raises(SignatureError, match="the signature of 1 file"):
        verify_signatures(REQUESTS, forged, world.sources(requests))


ROOT = LockedIssuer(subject="CN=Somebody's Root", thumbprint="ab" * 32)


def _changed(entry: LockedArtifact, **changes: object) -> LockedArtifact:
    """The entry with other facts about the signature of b.exe."""
    signed = {file: one.model_copy(update=changes) for file, one in (entry.signed or {}).items()}
    return entry.model_copy(update={"signed": signed})


FORGERIES: dict[str, tuple[Callable[[LockedArtifact], LockedArtifact], str]] = {
    "a signature that Windows would not show": (
        lambda entry: _changed(entry, by="nested"),
        "b: b.exe: by is nested in the lock, but own in the file",
    ),
    "a program that is none": (
        lambda entry: entry.model_copy(update={"signed": {}, "not_programs": ["b.exe", "read.me"]}),
        "b: b.exe: the lock says that it is no program, but the file is signed by CN=Example Inc, O=Example Inc, C=US",
    ),
    "somebody else's certificate": (
        lambda entry: _changed(entry, signer="CN=Example Inc", thumbprint="ab" * 32),
        "b: b.exe: signer is CN=Example Inc in the lock, but CN=Example Inc, O=Example Inc, C=US in the file; "
        f"thumbprint is {'ab' * 32} in the lock, but {pki().signer.read.sha256.lower()} in the file",
    ),
    "another root": (
        lambda entry: _changed(entry, root=ROOT),
        f"b: b.exe: root is CN=Somebody's Root (sha256 {'ab' * 32}) in the lock, but CN=Example Root, O=Example "
        f"(sha256 {pki().root.read.sha256.lower()}) in the file",
    ),
    "a timestamp": (
        lambda entry: _changed(entry, timestamp="2026-01-01T00:00:00Z", timestamp_root=ROOT),
        "b: b.exe: timestamp is 2026-01-01T00:00:00Z in the lock, but none in the file; "
        f"timestamp_root is CN=Somebody's Root (sha256 {'ab' * 32}) in the lock, but none in the file",
    ),
    "a signature of a text": (
        lambda entry: entry.model_copy(
            update={"signed": dict.fromkeys(("b.exe", "read.me"), (entry.signed or {})["b.exe"]), "not_programs": []}
        ),
        "b: read.me: the lock says that it is signed by CN=Example Inc, O=Example Inc, C=US, but the file is no "
        "program",
    ),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_lock_that_is_wrong_about_signatures_is_refused_until_they_are_read_again(world: World, case: str) -> None:
    requests, (forge, says) = wanted("CN=Example Inc"), FORGERIES[case]
    good = world.lock(requests)
    forged = good | {"b": forge(good["b"])}
    assert forged != good
    # The facts satisfy the policy, so that nothing else notices it.
    assert world.lock(requests, Lock(artifacts=forged)) == forged
    sources = dataclasses.replace(world.sources(requests), lock="x.lock.json", upgrade="imagegen lock x --upgrade")
    with pytest.raises(VerificationError) as raised:
        verify_signatures(REQUESTS, forged, sources)
    assert raised.value.message == "x.lock.json is wrong about the signature of 1 file"
    assert raised.value.details == (says,)
    assert raised.value.hint.endswith("; `imagegen lock x --upgrade b` reads the signatures from the files again")
    again = Refresh(frozenset({"b"}), accepts_own=True)
    assert world.lock(requests, Lock(artifacts=forged), again) == good


def test_what_the_lock_says_of_files_of_another_target_is_not_compared(world: World) -> None:
    good = world.lock(wanted("CN=Example Inc"))
    verify_signatures(REQUESTS, good, world.sources(wanted("CN=Example Inc", b=("read.me",))))


ANOTHER = sign_pe(PROGRAM + bytes(16), pki().signer)


def with_another_checksum(data: bytes) -> bytes:
    """The PE checksum, which no signature covers."""
    return changed(data, int.from_bytes(data[60:64], "little") + 24 + 64)


@pytest.mark.parametrize("swapped", [ANOTHER, with_another_checksum(SIGNED)], ids=["another program", "a free byte"])
def test_a_file_that_the_same_signer_signed_is_told_only_by_its_digest(
    world: World, tmp_path: Path, swapped: bytes
) -> None:
    """Under the name of a member, and valid: who can sign can swap, so the lock pins the bytes."""
    requests = wanted("CN=Example Inc")
    good = world.lock(requests)
    world.cache = Cache(tmp_path / "other", 2**30, lambda _: None)
    world.web[B] = archive(b_exe=swapped, read_me=b"text", other_exe=PROGRAM)
    accepted = world.lock(requests)["b"]
    assert (accepted.signed, accepted.members == good["b"].members) == (good["b"].signed, False)
    world.cache = Cache(tmp_path / "third", 2**30, lambda _: None)
    with pytest.raises(VerificationError, match=r"but [0-9a-f]{64} is expected"):
        verify_signatures(REQUESTS, good, world.sources(requests))
    with pytest.raises(VerificationError, match="have changed since it was locked"):
        world.lock(requests, Lock(artifacts=good), Refresh(None))


def test_a_build_needs_no_network_for_what_the_cache_has(world: World) -> None:
    requests = wanted("CN=Example Inc")
    good = world.lock(requests)
    world.web.clear()
    world.downloaded.clear()
    verify_signatures(REQUESTS, good, world.sources(requests))
    assert world.downloaded == []


def test_a_build_downloads_what_the_cache_lost(world: World, tmp_path: Path) -> None:
    requests = wanted("CN=Example Inc")
    good = world.lock(requests)
    world.downloaded.clear()
    world.cache = Cache(tmp_path / "other", 2**30, lambda _: None)
    verify_signatures(REQUESTS, good, world.sources(requests))
    assert sorted(world.downloaded) == [A, B]
    world.cache = Cache(tmp_path / "third", 2**30, lambda _: None)
    world.web[A] = SOMEBODYS
    with pytest.raises(VerificationError, match=r"but [0-9a-f]{64} is expected"):
        verify_signatures(REQUESTS, good, world.sources(requests))


def test_the_time_of_the_build_counts(world: World) -> None:
    requests = wanted("CN=Example Inc")
    good = world.lock(requests)
    world.trust = dataclasses.replace(trust(), now=LATER)
    assert world.lock(requests, Lock(artifacts=good)) == good
    with pytest.raises(SignatureError) as raised:
        verify_signatures(REQUESTS, good, world.sources(requests))
    assert "expired" in raised.value.details[0]
