"""One file of an archive on the model machine. It is read and tested like any other file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.archives import unpack
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.kinds.kind import copy_into_place
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.resources.kinds import Extract


def put(machine: Machine, wanted: Extract, supplies: Supplies) -> bool:
    files = machine.files
    if files.is_folder(wanted.path):
        raise RefusedByWindows(f"{wanted.path} is a folder")
    if not files.is_folder(parent(wanted.path)):
        raise RefusedByWindows(f"there is no folder {parent(wanted.path)} for a file of archive {wanted.artifact}")
    machine.need_tool("tar.exe")
    data = unpack(files, supplies.need_artifact(), 0).get(wanted.member.replace("/", "\\"))
    if data is None:
        raise RefusedByWindows(f"tar.exe: {wanted.member}: Not found in archive")
    copy_into_place(machine, data, wanted.path, wanted.sha256, supplies)
    return False
