"""Which files of a lock are copied to a mirror, which are kept, and what is refused."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.fetch.credentials import PrivateHosts
from imagegen.fetch.http import Web
from imagegen.fetch.lock import LockedArtifact
from imagegen.fetch.request import ArtifactRequest
from imagegen.mirror.fill import Filled, WantedFile, fill, open_mirror
from imagegen.mirror.images import Origin
from imagegen.run import Run
from tests.unit.mirror.conftest import Given, Memory, sha

if TYPE_CHECKING:
    from collections.abc import Sequence

A, B = "https://dl.example.com/v1/a.zip", "https://own.example.com/b.exe"
WEB = {A: b"bytes of a", B: b"bytes of b"}


def _never(*_: object) -> dict[str, str]:
    raise AssertionError("nothing needs credentials")


ORIGIN = Origin(PrivateHosts({}, {}, _never), Web(environ={}), _never, _never)  # type: ignore[arg-type]  # nobody asks


def wanted(url: str, data: bytes | None = None, *, published: str = "", own: bool = False) -> WantedFile:
    data = WEB[url] if data is None else data
    request = ArtifactRequest("x", url, None, "file", f"overrides.{url[-5]}", published or url, own=own)
    return WantedFile.of(request, LockedArtifact(url=url, sha256=sha(data), size=len(data)), ORIGIN, {})


@pytest.fixture
def source(given: Given) -> Given:
    given.web.update({url: [data] for url, data in WEB.items()})
    return given


def run(
    memory: Memory, source: Given, files: Sequence[WantedFile], when: str = "now", *, dry_run: bool = False
) -> Filled:
    return fill(files, [], memory, source, when, dry_run=dry_run)


def test_files_are_copied_and_the_index_is_written_last(memory: Memory, source: Given) -> None:
    filled = run(memory, source, [wanted(A), wanted(B, own=True), wanted(A)])
    assert memory.files["dl.example.com/v1/a.zip"] == WEB[A]
    assert memory.puts[-1] == "index.json"
    assert (filled.copied, filled.kept) == ({"dl.example.com/v1/a.zip": 10, "own.example.com/b.exe": 10}, {})
    assert filled.own == {"overrides.b": "own.example.com/b.exe"}
    assert json.loads(memory.files["index.json"]) == {
        "index_version": 1,
        "images": {},
        "files": {
            "dl.example.com/v1/a.zip": {"url": A, "sha256": sha(WEB[A]), "size": 10, "when": "now"},
            "own.example.com/b.exe": {"url": B, "sha256": sha(WEB[B]), "size": 10, "when": "now"},
        },
    }


def test_one_error_has_all_variables_before_anything_is_downloaded(memory: Memory, source: Given) -> None:
    ways = {"dl.example.com": {"token_env": "A_TOKEN"}, "own.example.com": {"query_env": "B_SAS"}}
    origin = dataclasses.replace(ORIGIN, private=PrivateHosts(ways, {}, _never))
    files = [
        dataclasses.replace(one, place=dataclasses.replace(one.place, origin=origin)) for one in (wanted(A), wanted(B))
    ]
    with pytest.raises(ConfigError) as refused:
        run(memory, source, files)
    assert refused.value.message == (
        "artifacts.credentials: A_TOKEN and B_SAS must have the credentials of dl.example.com and own.example.com, "
        "and are not set"
    )
    assert (source.asked, memory.puts) == ([], [])


def test_a_second_run_downloads_nothing_and_changes_nothing(memory: Memory, source: Given) -> None:
    run(memory, source, [wanted(A), wanted(B)])
    before, asked = dict(memory.files), len(source.asked)
    filled = run(memory, source, [wanted(A), wanted(B)], "later")
    assert (filled.copied, len(filled.kept)) == ({}, 2)
    assert memory.files == before
    assert len(source.asked) == asked


def test_a_run_that_failed_is_continued(memory: Memory, source: Given) -> None:
    source.web[B] = [RefusedError("broken")]
    with pytest.raises(RefusedError, match="broken"):
        run(memory, source, [wanted(A), wanted(B)])
    assert "index.json" not in memory.files
    source.web[B] = [WEB[B]]
    filled = run(memory, source, [wanted(A), wanted(B)])
    assert ([*filled.copied], [*filled.kept]) == (["own.example.com/b.exe"], ["dl.example.com/v1/a.zip"])
    assert len(json.loads(memory.files["index.json"])["files"]) == 2


def test_a_dry_run_changes_nothing(memory: Memory, source: Given) -> None:
    assert [*run(memory, source, [wanted(A)], dry_run=True).copied] == ["dl.example.com/v1/a.zip"]
    assert (memory.files, source.asked) == ({}, [])


def test_a_config_with_a_mirror_fills_another_one_from_it(memory: Memory, source: Given) -> None:
    mirrored = "https://mirror.example.com/files/dl.example.com/v1/a.zip"
    source.web[mirrored] = [WEB[A]]
    run(memory, source, [wanted(mirrored, WEB[A], published=A)])
    assert json.loads(memory.files["index.json"])["files"]["dl.example.com/v1/a.zip"]["url"] == A
    assert [url for url, _ in source.asked] == [mirrored]


def test_other_bytes_in_the_mirror_are_not_replaced(memory: Memory, source: Given) -> None:
    memory.files["dl.example.com/v1/a.zip"] = b"other"
    with pytest.raises(
        VerificationError, match=r"the mirror has another file at dl\.example\.com/v1/a\.zip"
    ) as refused:
        run(memory, source, [wanted(A)])
    assert "remove it from the mirror" in refused.value.hint
    assert memory.files == {"dl.example.com/v1/a.zip": b"other"}


def test_a_storage_without_digests_gets_the_file_again(memory: Memory, source: Given) -> None:
    memory.files["dl.example.com/v1/a.zip"] = WEB[A]
    memory.hides_digests = True
    assert [*run(memory, source, [wanted(A)]).copied] == ["dl.example.com/v1/a.zip"]
    memory.files["dl.example.com/v1/a.zip"] = b"other"
    with pytest.raises(VerificationError, match="it has 5 bytes"):
        run(memory, source, [wanted(A)])


def test_two_locks_with_other_bytes_of_one_url_are_refused(memory: Memory, source: Given) -> None:
    with pytest.raises(VerificationError, match=r"in one lock, and .* in another"):
        run(memory, source, [wanted(A), wanted(A, b"other bytes")])
    assert memory.files == {}


def test_the_entries_of_another_run_stay(memory: Memory, source: Given) -> None:
    run(memory, source, [wanted(A)], "first")
    memory.losses = 2
    run(memory, source, [wanted(A), wanted(B)], "second")
    files = json.loads(memory.files["index.json"])["files"]
    assert {path: row["when"] for path, row in files.items()} == {
        "dl.example.com/v1/a.zip": "first",
        "own.example.com/b.exe": "second",
    }


@pytest.mark.parametrize(
    "index",
    [
        b"{",
        b"[]",
        b'{"index_version": 2}',
        b'{"files": {"a": {"url": "u"}}}',
        b'{"more": 1}',
        b'{"index_version": 1e1}',
    ],
)
def test_an_index_that_is_not_valid_is_refused(index: bytes, memory: Memory, source: Given) -> None:
    memory.files["index.json"] = index
    with pytest.raises(RefusedError, match=r"index\.json of the mirror is not valid"):
        run(memory, source, [wanted(A)])
    assert memory.files == {"index.json": index}


def test_several_errors_are_shown_together(memory: Memory, source: Given) -> None:
    source.web.update({A: [RefusedError("first")], B: [VerificationError("second", hint="look")]})
    with pytest.raises(VerificationError, match="2 of 2 files failed") as failed:
        run(memory, source, [wanted(A), wanted(B)])
    assert failed.value.details == ("first", "second", "  hint: look")


@pytest.mark.parametrize("address", ["ftp://host/a", "https://host/a", "gs://bucket"])
def test_an_unknown_kind_of_address_is_refused(address: str) -> None:
    with (
        pytest.raises(ConfigError, match="is not the address of a mirror") as refused,
        open_mirror(address, Run({}, {}, "", console=Console(io.StringIO(), plain=True)), writes=True),
    ):
        pass
    assert refused.value.hint == "write a folder, or s3://BUCKET/FOLDER, az://ACCOUNT/CONTAINER/FOLDER"
