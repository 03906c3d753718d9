"""Finds files in an archive whose layout nobody knows: by their names, wherever they are. Pure.

An operator packs programs in another way than their publisher. A name that two different files have is an error:
nothing would tell which of them runs on the nodes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import VerificationError
from imagegen.fetch.request import TakenFile, shown_url

if TYPE_CHECKING:
    from imagegen.fetch.request import ArtifactRequest

Members = Mapping[str, str]
"""The sha256 of each file of an archive by its path."""

# For these names, the bytes of an archive are never right.
_PROGRAMS: Final = (".exe", ".dll", ".sys", ".ps1", ".psm1", ".psd1", ".cmd", ".bat")
_NESTED: Final = re.compile(r".*\.(zip|tar|tgz|tar\.gz|nupkg|7z|cab)", re.IGNORECASE)
_ARCHITECTURE: Final = re.compile(r"(win|windows-)?(32|64|x86|x64|amd64|arm64)")
_SHOWN: Final = 12


class NotInArchiveError(Exception):
    """The archive does not have a file, or has different files with its name. The message follows "the archive"."""

    def __init__(self, message: str, content: str) -> None:
        super().__init__(f"{message}: {content}")
        self.message = message
        self.content = content
        """What the archive has."""


def is_program(name: str) -> bool:
    """Whether a file with this name is a program, a library or a script."""
    return name.lower().endswith(_PROGRAMS)


def file_name(path: str) -> str:
    """The last part of a path in an archive."""
    return path.rpartition("/")[2]


def find_member(members: Members, file: TakenFile, *, any_name: bool = False) -> str:
    """The path of a file in an archive. It has its name of the published archive, or its name on the machine.

    With `any_name`, a program may have another name if it is the only one.
    """
    path = file.path
    found = _with_ending(members, path, 1) or _with_ending(members, file.name, 1)
    if not found and any_name and is_program(path):
        programs = [one for one in members if one.lower().endswith(".exe")]
        found = programs if len({members[one] for one in programs}) == 1 else []
    if not found:
        raise NotInArchiveError(f"does not have {file_name(path)}", describe(members))
    # An archive may have a program for each architecture: then the folder of the published archive counts.
    if _ARCHITECTURE.fullmatch(path.rpartition("/")[0].rpartition("/")[2]):
        found = _with_ending(found, path, 2) or found
    return _choose(members, found, path)


def find_folder(members: Members, paths: Sequence[str]) -> str | None:
    """The folder that has all these files, as `a/b/`; empty for the root. None if no folder has all of them."""
    places = {path: _with_ending(members, path, path.count("/") + 1) for path in paths}
    if missing := [path for path, found in places.items() if not found]:
        raise NotInArchiveError(f"does not have {', '.join(missing)}", describe(members))
    for path, found in places.items():
        _choose(members, found, path)
    folders = [{one[: len(one) - len(path)] for one in found} for path, found in places.items()]
    return min(set.intersection(*folders), key=_depth, default=None)


def find_ambiguous(members: Members) -> dict[str, list[str]]:
    """The programs of one name that have different bytes, by that name. Those of an architecture each lie in its
    folder, and are told apart."""
    paths: dict[str, list[str]] = {}
    for path in sorted(members, key=_depth):
        folder = path.rpartition("/")[0].rpartition("/")[2]
        if path.lower().endswith(".exe") and not _ARCHITECTURE.fullmatch(folder):
            paths.setdefault(file_name(path).lower(), []).append(path)
    return {name: found for name, found in paths.items() if len({members[path] for path in found}) > 1}


def find_folder_and_file(paths: Iterable[str], separator: str = "/") -> str | None:
    """A path of these files that is also a folder of one of them."""
    # No character of a path comes before this one: what is in a folder follows the folder.
    ordered = sorted(path.replace(separator, "\0") for path in paths)
    found = (path for path, following in itertools.pairwise(ordered) if following.startswith(f"{path}\0"))
    return next((path.replace("\0", separator) for path in found), None)


def check_files(request: ArtifactRequest, members: Members) -> None:
    """Reject an archive that does not have each of the files that the config takes from it."""
    alone = ", or to the URL of the file itself" if request.is_one_file else ""
    for file in request.files:
        try:
            find_member(members, file, any_name=request.any_name)
        except NotInArchiveError as error:
            raise VerificationError(
                f"{request.name}: the archive {shown_url(request.url)} {error}",
                hint=f"set {request.file_key or request.key} to an archive that has one {file_name(file.path)}{alone}",
            ) from error


def describe(members: Members) -> str:
    """What is in an archive, for an error: the programs first."""
    if not members:
        return "it is empty"
    ordered = sorted(members, key=lambda path: (not is_program(path), path))
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    nested = "; imagegen does not open an archive in an archive" if any(map(_NESTED.fullmatch, members)) else ""
    return f"it has {', '.join(ordered[:_SHOWN])}{more}{nested}"


def _choose(members: Members, found: Iterable[str], path: str) -> str:
    """One of the files, all of which must have the same bytes."""
    ordered = sorted(found, key=_depth)
    if len({members[one] for one in ordered}) > 1:
        message = f"has different files with the name {file_name(path)}"
        raise NotInArchiveError(message, ", ".join(ordered[:_SHOWN]))
    return ordered[0]


def _with_ending(members: Iterable[str], path: str, parts: int) -> list[str]:
    """The files whose last parts are those of the path."""
    ending = path.split("/")[-parts:]
    return [one for one in members if _are_same(one.split("/")[-parts:], ending)]


def _are_same(names: Sequence[str], others: Sequence[str]) -> bool:
    """Whether Windows takes them for the same names. It does not distinguish upper and lower case."""
    return len(names) == len(others) and all(
        one == other or (one.isascii() and one.lower() == other.lower())
        for one, other in zip(names, others, strict=True)
    )


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path
