"""Fits a resource to the bytes of its artifact: the file itself, or files of an archive, with their digests. Pure.

The plan is final: it names the file of the archive, and the machine looks for nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from imagegen.fetch.request import TakenFile
from imagegen.inspect.members import (
    NotInArchiveError,
    describe,
    file_name,
    find_folder,
    find_folder_and_file,
    find_member,
    is_program,
)
from imagegen.steps.kinds import EXTRACTABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.fetch.lock import LockedArtifact
    from imagegen.fetch.request import ArtifactRequest

Fitted = tuple[str, dict[str, Any]]
"""A kind of resource and its fields."""

# The field that asks for files of the artifact.
_ASKING: Final = {"file": "artifact", "extract": "member", "archive": "expect"}
# The limit of the kind `archive`.
_DEEPEST: Final = 8
_REPACK: Final = "pack the files again, in one folder"


class UnfitError(Exception):
    """The archive does not have what the resource needs. `key` is the field that asks for it."""

    def __init__(self, message: str, key: str, hint: str) -> None:
        super().__init__(message)
        self.key = key
        self.hint = hint


def fit(kind: str, fields: dict[str, Any], artifact: LockedArtifact, request: ArtifactRequest) -> list[Fitted]:
    """The resources that put on the machine what this resource needs: itself, or one for each file of an archive.

    A public artifact has the layout that its step knows. One of the config may have another."""
    if kind not in _ASKING:
        return [(kind, fields)]
    try:
        if kind == "archive":
            return _fit_archive(fields, artifact, request)
        return [_fit_file(fields, artifact, request) if kind == "file" else _fit_extract(fields, artifact, request)]
    except NotInArchiveError as error:
        raise UnfitError(f"the archive {request.name} {error.message}", _ASKING[kind], error.content) from error


def _fit_file(fields: dict[str, Any], artifact: LockedArtifact, request: ArtifactRequest) -> Fitted:
    name = _name(fields)
    # A program may also be on the machine without .exe.
    wanted = next((one for one in request.files if one.name in (name, f"{name}.exe")), None)
    if "sha256" in fields or artifact.members is None or wanted is None:
        return "file", {"sha256": artifact.sha256, **fields}
    return _extract(fields, artifact.members, find_member(artifact.members, wanted, any_name=request.any_name))


def _fit_extract(fields: dict[str, Any], artifact: LockedArtifact, request: ArtifactRequest) -> Fitted:
    asked = str(fields.get("member"))
    if artifact.members is None and request.is_one_file:
        return "file", {**_without(fields, "member"), "sha256": artifact.sha256}
    members = artifact.members or {}
    if request.files:
        return _extract(fields, members, find_member(members, TakenFile(asked, _name(fields))))
    if asked not in members:
        raise NotInArchiveError(f"does not have {asked}", describe(members))
    return _extract(fields, members, asked)


def _name(fields: Mapping[str, Any]) -> str:
    return str(fields.get("path")).rpartition("\\")[2]


def _extract(fields: dict[str, Any], members: Mapping[str, str], member: str) -> Fitted:
    if not re.fullmatch(EXTRACTABLE, member):
        raise NotInArchiveError(
            f"has {member!a}, a path that the machine cannot take from an archive",
            "pack it again, in folders with names of letters, digits, spaces, dots, dashes and underscores",
        )
    return "extract", {**fields, "member": member, "sha256": members[member]}


def _fit_archive(fields: dict[str, Any], artifact: LockedArtifact, request: ArtifactRequest) -> list[Fitted]:
    members, strip, expected = artifact.members or {}, int(fields.get("strip", 0)), fields.get("expect")
    inside = ""
    if request.files and expected:
        single = [{"path": f"{fields.get('into')}\\{name}", "artifact": fields["artifact"]} for name in expected]
        if artifact.members is None and request.is_one_file:
            return [("file", {**single[0], "sha256": artifact.sha256})]
        paths = [str(name).replace("\\", "/") for name in expected]
        folder = find_folder(members, paths)
        if folder is None or folder.count("/") + (artifact.dotted is not None) > _DEEPEST:
            found = [find_member(members, TakenFile(path, file_name(path))) for path in paths]
            return [_extract(one, members, member) for one, member in zip(single, found, strict=True)]
        strip, inside = folder.count("/"), folder
    placed = _place(members, strip, inside, expected or ())
    if strip and artifact.dotted == "some":
        raise NotInArchiveError("has paths with a leading ./ beside others, of which tar.exe strips less", _REPACK)
    # tar.exe takes the `./` before a path for a folder.
    strip += bool(strip and artifact.dotted)
    sizes = artifact.sizes or {}
    listed = [{"path": to, "sha256": members[path], "size": sizes.get(path)} for to, path in sorted(placed.items())]
    return [("archive", {**_without(fields, "expect"), "strip": strip, "members": listed})]


def _place(members: Mapping[str, str], strip: int, folder: str, expected: Sequence[str]) -> dict[str, str]:
    """The member at each path that the archive's files have without the stripped folders: those of one folder.

    tar.exe unpacks the others too. Where two differ, the last one counts, which nobody should have to know."""
    wanted = {name.lower() for name in expected}
    unpacked: dict[str, list[str]] = {}
    for path in members:
        if path.count("/") >= strip:
            unpacked.setdefault(stripped(path, strip).casefold(), []).append(path)
    placed = {}
    for at, paths in unpacked.items():
        own = [path for path in paths if path.startswith(folder)]
        if own and len({members[path] for path in paths}) == 1:
            placed[stripped(own[0], strip)] = own[0]
        elif own and (not folder or at in wanted or is_program(at)):
            raise NotInArchiveError(f"has different files that become {at} without their folders", ", ".join(paths))
    if both := find_folder_and_file(unpacked, "\\"):
        raise NotInArchiveError(f"has a file and a folder that become {both} without their folders", _REPACK)
    if missing := [name for name in expected if name.casefold() not in {at.casefold() for at in placed}]:
        raise NotInArchiveError(f"does not have {', '.join(missing)}", describe(members))
    return placed


def stripped(path: str, strip: int) -> str:
    """The path on the machine of a file of an archive, without the first folders."""
    return "\\".join(path.split("/")[strip:])


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
