"""Artifacts that are too new, and those that nobody knows the age of."""

from __future__ import annotations

import pytest

from imagegen.base.errors import RefusedError
from imagegen.fetch.drift import check_quarantine
from imagegen.fetch.lock import LockedArtifact
from imagegen.fetch.request import ArtifactRequest

SHA = "ab" * 32
URL = "https://a.example/tool.zip"
NOW = "2026-11-19T12:00:00Z"


def request(name: str, sha256: str | None = None) -> ArtifactRequest:
    return ArtifactRequest(name, f"{URL}?{name}", sha256, "archive", f"overrides.{name}_url", URL)


def locked(published: str | None) -> LockedArtifact:
    return LockedArtifact(url=URL, sha256=SHA, size=1, published=published)


@pytest.mark.parametrize(
    ("published", "days", "is_refused"),
    [
        ("2026-11-12T12:00:00Z", 7, False),
        ("2026-11-12T12:00:01Z", 7, True),
        ("2026-11-19T11:00:00Z", 1, True),
        ("2026-11-20T11:00:00Z", 1, True),
        ("2020-01-01T00:00:00Z", 365, False),
        ("2026-11-19T11:00:00Z", 0, False),
        (None, 1, True),
        (None, 0, False),
    ],
)
def test_age(published: str | None, days: int, is_refused: bool) -> None:
    artifacts = {"tool": locked(published)}
    # The operator has decided on the bytes of the second one.
    check_quarantine({"tool": request("tool", SHA)}, artifacts, days, NOW)
    try:
        check_quarantine({"tool": request("tool")}, artifacts, days, NOW)
    except RefusedError:
        assert is_refused
    else:
        assert not is_refused


def test_every_refused_artifact_is_named_with_what_helps() -> None:
    requests = {name: request(name) for name in ("new", "unknown", "old")}
    artifacts = {"new": locked("2026-11-18T01:02:03Z"), "unknown": locked(None), "old": locked("2026-01-01T00:00:00Z")}
    with pytest.raises(RefusedError) as refused:
        check_quarantine(requests, artifacts, 7, NOW)
    assert refused.value.message == "artifacts.quarantine_days is 7, which refuses 2 artifacts"
    assert [*refused.value.details] == [
        "new: https://a.example/tool.zip was published on 2026-11-18, and may be used from 2026-11-25T01:02:03Z on",
        "unknown: https://a.example/tool.zip has an unknown age: its server sends no Last-Modified",
    ]
    assert "overrides.new_url, overrides.unknown_url" in refused.value.hint
    assert refused.value.exit_code == 5
