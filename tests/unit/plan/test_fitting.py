"""Which files of an artifact a resource gets, and which layouts are refused."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import pytest

from imagegen.fetch.lock import LockedArtifact
from imagegen.fetch.request import ArtifactRequest, TakenFile
from imagegen.plan.fitting import UnfitError, fit
from imagegen.steps.evaluate import Draft
from imagegen.steps.kinds import KINDS
from imagegen.trust.policy import _UsedFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

URL = "https://tools.example/tool.zip"
INTO = r"C:\tool"
Dotted = Literal["all", "some"] | None


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def request(*files: str) -> ArtifactRequest:
    """The published archive, or the config's own with these files."""
    taken = tuple(TakenFile(f"bin/{name}", name) for name in files)
    return ArtifactRequest("tool", URL, None, "archive", "overrides.tool_url", URL, files=taken)


def archive(contents: Mapping[str, str], dotted: Dotted = None) -> LockedArtifact:
    return LockedArtifact(
        url=URL,
        sha256="0" * 64,
        size=1,
        members={path: sha(text) for path, text in contents.items()},
        sizes={path: len(text) for path, text in contents.items()},
        dotted=dotted,
    )


def fitted(
    contents: Mapping[str, str],
    *,
    strip: int = 1,
    dotted: Dotted = None,
    own: bool = False,
    expect: list[str] | None = None,
) -> list[tuple[str, dict[str, Any]]]:
    fields = {"artifact": "tool", "into": INTO, "strip": strip, **({"expect": expect} if expect else {})}
    return fit("archive", fields, archive(contents, dotted), request(*(expect or ()) if own else ()))


def listed(found: list[tuple[str, dict[str, Any]]]) -> tuple[int, dict[str, str]]:
    """The strip of the planned archive, and the digest of each of its members."""
    [(kind, fields)] = found
    KINDS[kind].model_validate(fields)
    return fields["strip"], {one["path"]: one["sha256"] for one in fields["members"]}


TOOLS = {"bin/a.exe": "a", "bin/lib/b.dll": "bb", "README": "readme"}


def test_an_archive_lists_every_file_that_is_unpacked() -> None:
    [(_, fields)] = fitted(TOOLS, expect=["a.exe"])
    assert fields["members"] == [
        {"path": "a.exe", "sha256": sha("a"), "size": 1},
        {"path": r"lib\b.dll", "sha256": sha("bb"), "size": 2},
    ]
    assert listed(fitted(TOOLS, strip=0)) == (0, {path.replace("/", "\\"): sha(text) for path, text in TOOLS.items()})


@pytest.mark.parametrize("own", [False, True])
def test_a_leading_dot_is_one_more_folder_to_strip(own: bool) -> None:
    plain = listed(fitted(TOOLS, expect=["a.exe"], own=own))
    assert plain == (1, {"a.exe": sha("a"), r"lib\b.dll": sha("bb")})
    assert listed(fitted(TOOLS, expect=["a.exe"], own=own, dotted="all")) == (2, plain[1])
    # Nothing to strip: tar.exe writes `./a` where it writes `a`.
    assert listed(fitted(TOOLS, strip=0, dotted="some")) == listed(fitted(TOOLS, strip=0))


@pytest.mark.parametrize("own", [False, True])
def test_a_leading_dot_before_some_paths_is_refused_where_folders_are_stripped(own: bool) -> None:
    with pytest.raises(UnfitError, match=r"has paths with a leading \./ beside others") as refused:
        fitted({"bin/a.exe": "a", "version.dll": "other"}, expect=["a.exe"], own=own, dotted="some")
    assert (refused.value.key, refused.value.hint) == ("expect", "pack the files again, in one folder")


def test_an_archive_of_ones_own_gives_the_files_of_one_folder() -> None:
    contents = {"x/y/a.exe": "a", "x/y/b.dll": "b", "x/z/c.exe": "c", "LICENSE": "l"}
    assert listed(fitted(contents, expect=["a.exe"], own=True)) == (2, {"a.exe": sha("a"), "b.dll": sha("b")})


def test_files_that_become_one_are_refused_if_they_differ() -> None:
    same = {"x/a.exe": "a", "y/a.exe": "a"}
    assert listed(fitted(same)) == (1, {"a.exe": sha("a")})
    with pytest.raises(UnfitError, match=r"has different files that become a\.exe") as refused:
        fitted({"x/a.exe": "a", "y/A.exe": "b"})
    assert refused.value.hint == "x/a.exe, y/A.exe"
    with pytest.raises(UnfitError, match="has different files that become license"):
        fitted({"x/LICENSE": "a", "y/LICENSE": "b"})
    # Of an archive of one's own, what is no program and not expected is left out.
    merged = {"x/a.exe": "a", "x/LICENSE": "a", "y/b.exe": "b", "y/LICENSE": "b"}
    assert listed(fitted(merged, expect=["a.exe"], own=True)) == (1, {"a.exe": sha("a")})
    with pytest.raises(UnfitError, match=r"has different files that become c\.dll"):
        fitted({**merged, "x/c.dll": "1", "y/c.dll": "2"}, expect=["a.exe"], own=True)


def test_a_file_and_a_folder_that_become_one_are_refused() -> None:
    with pytest.raises(UnfitError, match="has a file and a folder that become lib without their folders"):
        fitted({"x/lib": "a", "y/lib/b.dll": "b"})


def test_an_archive_without_what_is_expected_is_refused() -> None:
    with pytest.raises(UnfitError, match=r"does not have c\.exe") as refused:
        fitted(TOOLS, expect=["A.EXE", "c.exe"])
    assert refused.value.hint == "it has bin/a.exe, bin/lib/b.dll, README"


def test_a_folder_that_is_too_deep_is_not_stripped() -> None:
    folder = "/".join("abcdefgh")
    assert listed(fitted({f"{folder}/a.exe": "a"}, expect=["a.exe"], own=True))[0] == 8
    found = fitted({f"{folder}/a.exe": "a"}, expect=["a.exe"], own=True, dotted="all")
    assert found == [
        ("extract", {"path": rf"{INTO}\a.exe", "artifact": "tool", "member": f"{folder}/a.exe", "sha256": sha("a")})
    ]


def test_a_file_keeps_the_digest_that_its_step_gives_it() -> None:
    fields = {"path": rf"{INTO}\a.exe", "artifact": "tool", "sha256": "5" * 64}
    assert fit("file", dict(fields), archive(TOOLS), request("a.exe")) == [("file", fields)]
    del fields["sha256"]
    [(kind, found)] = fit("file", dict(fields), archive(TOOLS), request("a.exe"))
    assert (kind, found["sha256"]) == ("extract", sha("a"))


@pytest.mark.parametrize("own", [False, True])
def test_a_policy_asks_for_every_file_that_is_placed_and_no_other(own: bool) -> None:
    draft = Draft("archive", {"artifact": "tool", "into": INTO, "strip": 1, "expect": ["a.exe"]}, ())
    used = _UsedFiles(((request(*(["a.exe"] if own else ())), draft),))
    contents = {**TOOLS, "other/d.dll": "d"}
    taken = {"bin/a.exe": {"a.exe"}, "bin/lib/b.dll": {"b.dll"}} | ({} if own else {"other/d.dll": {"d.dll"}})
    assert used.select({path: sha(text) for path, text in contents.items()}) == taken
