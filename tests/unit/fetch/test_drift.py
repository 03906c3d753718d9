"""In what two locks differ, as it is shown."""

from __future__ import annotations

import pytest

from imagegen.fetch.drift import changed_digests, compare_locks, moved_redirects, rollbacks
from imagegen.fetch.lock import Lock, LockedArtifact, LockedBase, LockedIssuer, LockedSignature
from imagegen.fetch.request import ArtifactRequest
from imagegen.oci.names import LockedImage

SHA, OTHER = "ab" * 32, "cd" * 32
ARTIFACT = LockedArtifact(url="https://a.example/a.zip", sha256=SHA, size=1, members={"a.exe": SHA, "b.exe": SHA})
BASE = LockedBase(request={"name": "base-*"}, identity={"name": "base-1", "owner": "x"}, place={"ami_id": "ami-1"})
DIGEST = f"sha256:{SHA}"
IMAGE = LockedImage(
    digest=DIGEST,
    manifest=DIGEST,
    os_version="10.0.20348.1",
    windows_build=20348,
    config=DIGEST,
    layers=DIGEST,
    size=1,
)
LOCK = Lock(artifacts={"a": ARTIFACT}, base_images={"prod": BASE}, images={"a.example/b:1": IMAGE})


def artifact(**changes: object) -> Lock:
    return LOCK.model_copy(update={"artifacts": {"a": ARTIFACT.model_copy(update=changes)}})


def base(**changes: object) -> Lock:
    return LOCK.model_copy(update={"base_images": {"prod": BASE.model_copy(update=changes)}})


def image(**changes: object) -> Lock:
    return LOCK.model_copy(update={"images": {"a.example/b:1": IMAGE.model_copy(update=changes)}})


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (LOCK, LOCK, []),
        (LOCK, artifact(published="2026-01-01T00:00:00Z", confirmed=["https://a.example/a.zip.sha256"]), []),
        (LOCK, Lock(), []),
        (LOCK, artifact(sha256=OTHER, size=2, members={"a.exe": OTHER}), [f"a: sha256 {SHA} -> sha256 {OTHER}"]),
        (
            LOCK,
            artifact(url="https://b.example/a.zip"),
            ["a: url https://a.example/a.zip -> url https://b.example/a.zip"],
        ),
        (
            artifact(members={"a.exe": SHA, "b.exe": OTHER}),
            LOCK,
            [f"a: members b.exe: {OTHER} -> members b.exe: {SHA}"],
        ),
        (artifact(members={"b.exe": SHA}), LOCK, [f"a: members without a.exe -> members a.exe: {SHA}"]),
        (artifact(size=2), LOCK, ["a: size 2 -> size 1"]),
        (
            LOCK,
            base(identity={"name": "base-2", "owner": "x"}, place={"ami_id": "ami-2"}),
            ["base image for prod: name base-1, ami_id ami-1 -> name base-2, ami_id ami-2"],
        ),
        (LOCK, base(request={"name": "base-?"}), []),
        (
            LOCK,
            image(digest=f"sha256:{OTHER}", manifest=f"sha256:{OTHER}"),
            [f"a.example/b:1: digest {DIGEST} -> digest sha256:{OTHER}"],
        ),
        (
            None,
            LOCK,
            [
                "base image for prod: not locked -> name base-1, owner x, ami_id ami-1",
                f"a: not locked -> url https://a.example/a.zip, sha256 {SHA}",
                f"a.example/b:1: not locked -> digest {DIGEST}, os_version 10.0.20348.1, windows_build 20348",
            ],
        ),
    ],
)
def test_changes(old: Lock | None, new: Lock, shown: list[str]) -> None:
    assert [str(change) for change in compare_locks(old, new)] == shown


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        ("https://one.test/a", "https://two.test/a", "redirects to two.test now, no longer to one.test"),
        ("https://one.test/a", "https://one.test:8443/a", "redirects to one.test:8443 now, no longer to one.test"),
        ("https://one.test/a", "https://one.test/b", ""),
        ("https://one.test/a", None, ""),
        (None, "https://two.test/a", ""),
    ],
)
def test_a_redirect_to_another_host_is_a_note_and_no_drift(before: str | None, now: str | None, line: str) -> None:
    old, new = artifact(redirected_to=before), artifact(redirected_to=now)
    assert compare_locks(old, new) == []
    assert [*moved_redirects(old, new)] == ([f"a: https://a.example/a.zip {line}"] if line else [])
    assert [*moved_redirects(None, new)] == []


URL = "https://a.example/a.zip"
NEXT = "https://a.example/2/a.zip"


def asks(published: str = URL, sha256: str | None = None) -> ArtifactRequest:
    return ArtifactRequest("a", URL, sha256, "file", "overrides.a_url", published, own=True)


@pytest.mark.parametrize(
    ("new", "request_now", "lines"),
    [
        (artifact(url=NEXT), asks(), []),
        (artifact(sha256=OTHER), asks(sha256=OTHER), [f"a: sha256 {SHA} -> {OTHER}: overrides.a_url has this sha256"]),
        (
            artifact(sha256=OTHER, release=NEXT),
            asks(NEXT),
            [f"a: sha256 {SHA} -> {OTHER}: the config asks for {NEXT}, no longer for {URL}"],
        ),
        (artifact(sha256=OTHER), asks(), [f"a: sha256 {SHA} -> {OTHER}: it was looked up again"]),
        (
            image(manifest=f"sha256:{OTHER}"),
            asks(),
            [f"a.example/b:1: manifest {DIGEST} -> sha256:{OTHER}: it was looked up again"],
        ),
    ],
)
def test_each_changed_digest_has_a_line_with_its_reason(
    new: Lock, request_now: ArtifactRequest, lines: list[str]
) -> None:
    assert [*changed_digests(LOCK, new, {"a": request_now})] == lines
    assert [*changed_digests(None, new, {"a": request_now})] == []


def signed(timestamp: str | None) -> dict[str, LockedSignature]:
    root = LockedIssuer(subject="CN=root", thumbprint=SHA)
    return {"a.exe": LockedSignature(signer="CN=x", thumbprint=SHA, root=root, timestamp=timestamp)}


@pytest.mark.parametrize(
    ("was", "now", "is_told"),
    [
        ("2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z", True),
        ("2026-02-01T00:00:00Z", "2026-02-01T00:00:00Z", False),
        ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", False),
        ("2026-02-01T00:00:00Z", None, False),
        (None, "2026-01-01T00:00:00Z", False),
    ],
)
def test_a_file_that_was_signed_earlier_is_told_of(was: str | None, now: str | None, is_told: bool) -> None:
    old = artifact(signed=signed(was))
    new = artifact(signed=signed(now), sha256=OTHER)
    line = f"a was signed on {now}, but the locked one on {was}: this may be an older version"
    assert [*rollbacks(old, new)] == ([line] if is_told else [])
    assert [*rollbacks(old, artifact(signed=signed(now)))] == []
    assert [*rollbacks(None, new)] == []
