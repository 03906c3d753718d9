"""Files, folders and their access rights on the model machine: acl, archive, directory, file, path and volume."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import VerificationError
from imagegen.inspect.archive import find_type, read_archive
from imagegen.rehearsal.machine.access import (
    ALSO_HERE,
    CREATE,
    CREATOR_OWNER,
    EVERYTHING,
    FOLDERS,
    ONLY_BELOW,
    AccessEntry,
    effective,
    write,
)
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.kinds.kind import copy_into_place, file_facts
from imagegen.rehearsal.machine.plan import UNPACKED
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.windows import ENVIRONMENT

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.files import Files
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps import kinds

_FORMS: Final = ("zip", "tar.gz", "tar")
WORDS = {"full": "FullControl", "modify": "Modify", "read": "ReadAndExecute", "create": CREATE}
RIGHTS = {word: rights for rights, word in WORDS.items()}


def make_entry(sid: str, rights: str, *, is_folder: bool) -> AccessEntry:
    """The entry for a right that a plan gives. To create is a right in folders, and CREATOR OWNER's are for what is
    created."""
    entry = AccessEntry(sid, WORDS[rights], inherit=is_folder)
    if not is_folder:
        return entry
    if rights == "create":
        return dataclasses.replace(entry, inheritance=FOLDERS)
    return dataclasses.replace(entry, propagation=ONLY_BELOW if sid == CREATOR_OWNER else ALSO_HERE)


def get_acl(machine: Machine, wanted: kinds.Acl) -> Facts | None:
    if not machine.files.exists(wanted.path):
        return None
    access = effective(machine.files, wanted.path)
    entries = sorted(map(_fact, access.entries), key=lambda fact: (fact["sid"], fact["rights"], fact["inherit"]))
    return {"protected": access.protected, "entries": entries}


def _fact(entry: AccessEntry) -> dict[str, str | bool]:
    rights = RIGHTS.get(entry.rights, entry.rights)
    usual = (FOLDERS if entry.rights == CREATE else EVERYTHING, ONLY_BELOW if entry.sid == CREATOR_OWNER else ALSO_HERE)
    # An entry with other flags is never a planned one.
    is_usual = not entry.inherit or (entry.inheritance, entry.propagation) == usual
    flags = "" if is_usual else f" ({entry.inheritance}; {entry.propagation})"
    return {"sid": entry.sid, "rights": f"{'deny ' if entry.deny else ''}{rights}{flags}", "inherit": entry.inherit}


def put_acl(machine: Machine, wanted: kinds.Acl, _supplies: Supplies) -> None:
    is_folder = machine.files.is_folder(wanted.path)
    entries = [make_entry(entry.sid, entry.rights, is_folder=is_folder) for entry in wanted.entries]
    write(machine.files, wanted.path, entries, protected=True)


def get_archive(machine: Machine, wanted: kinds.Archive) -> Facts | None:
    files = machine.files
    if not files.is_folder(wanted.into):
        return None
    paths = {member.path: f"{wanted.into}\\{member.path}" for member in wanted.members}
    return {
        "members": {name: file_facts(files.read(path)) if files.is_file(path) else None for name, path in paths.items()}
    }


def put_archive(machine: Machine, wanted: kinds.Archive, supplies: Supplies) -> None:
    if not machine.files.is_folder(wanted.into):
        raise RefusedByWindows(f"there is no folder {wanted.into} for archive {wanted.artifact}")
    unpacked = unpack(machine.files, supplies.need_artifact(), wanted.strip)
    others = {name.lower(): (name, data) for name, data in unpacked.items() if data is not None}
    for member in wanted.members:
        if member.path.lower() not in others:
            raise RefusedByWindows(f"archive {wanted.artifact} has no {member.path}")
        _, data = others.pop(member.path.lower())
        path = f"{wanted.into}\\{member.path}"
        machine.files.make_folder(parent(path))
        copy_into_place(machine, data, path, member.sha256, supplies)
    supplies.left_out.extend(sorted(name for name, _ in others.values()))


def unpack(files: Files, archive: str, strip: int) -> dict[str, bytes | None]:
    """Bytes by path without the stripped parts."""
    data = files.read(archive)
    form = find_type(data[:1024])
    if form not in _FORMS:
        raise RefusedByWindows("tar.exe: unrecognized or damaged archive")
    unpacked: dict[str, bytes | None] = {}
    try:
        for member in read_archive(io.BytesIO(data), form, "the archive"):
            # tar.exe counts the `./` before a path as a part.
            parts = [*(["."] if member.is_dotted else []), *member.path.split("/")]
            if len(parts) > strip:
                unpacked["\\".join(part for part in parts[strip:] if part != ".")] = b"".join(member.chunks())
    except VerificationError as error:
        raise RefusedByWindows(f"tar.exe: unrecognized or damaged archive: {error}") from error
    return unpacked


def get_directory(machine: Machine, wanted: kinds.Directory) -> Facts | None:
    return {"exists": True, "open": wanted.open} if machine.files.is_folder(wanted.path) else None


def put_directory(machine: Machine, wanted: kinds.Directory, _supplies: Supplies) -> None:
    machine.files.make_folder(wanted.path)


def get_file(machine: Machine, wanted: kinds.File) -> Facts | None:
    return file_facts(machine.files.read(wanted.path)) if machine.files.is_file(wanted.path) else None


def put_file(machine: Machine, wanted: kinds.File, supplies: Supplies) -> None:
    if not machine.files.is_folder(parent(wanted.path)):
        raise RefusedByWindows(f"there is no folder {parent(wanted.path)}")
    copy_into_place(machine, _read_source(machine, wanted, supplies), wanted.path, wanted.sha256, supplies)


def _read_source(machine: Machine, wanted: kinds.File, supplies: Supplies) -> bytes:
    if wanted.member is None:
        origin = f"{UNPACKED}\\{wanted.source}" if wanted.source else supplies.need_artifact()
        return machine.files.read(origin)
    data = unpack(machine.files, supplies.need_artifact(), 0).get(wanted.member.replace("/", "\\"))
    if data is None:
        raise RefusedByWindows(f"tar.exe: {wanted.member}: Not found in archive")
    return data


def get_path(machine: Machine, wanted: kinds.Path) -> Facts | None:
    entries = (machine.registry.text(ENVIRONMENT, "Path") or "").split(";")
    found = (entry.strip() for entry in entries if _fold(entry) == _fold(wanted.entry))
    return next(({"entry": entry} for entry in found), None)


def put_path(machine: Machine, wanted: kinds.Path, _supplies: Supplies) -> None:
    before = (machine.registry.text(ENVIRONMENT, "Path") or "").rstrip(";")
    if get_path(machine, wanted) is None:
        machine.registry.write(ENVIRONMENT, "Path", Value("ExpandString", f"{before};{wanted.entry}"))


def _fold(entry: str) -> str:
    return entry.strip().rstrip("\\").lower()


def get_volume(machine: Machine, _wanted: kinds.Volume) -> Facts | None:
    return {"size": machine.volume.size, "largest": machine.volume.largest}


def put_volume(machine: Machine, _wanted: kinds.Volume, _supplies: Supplies) -> None:
    machine.volume.size = machine.volume.largest
