"""A file with exactly these bytes on the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.archives import unpack
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.kinds.kind import copy_into_place, file_facts
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import File


def get(machine: Machine, wanted: File) -> Facts | None:
    if not machine.files.is_file(wanted.path):
        return None
    return file_facts(machine.files.read(wanted.path))


def test(_machine: Machine, wanted: File, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no file {wanted.path}"]
    return [] if facts["sha256"] == wanted.sha256 else [f"sha256 is {facts['sha256']}, not {wanted.sha256}"]


def put(machine: Machine, wanted: File, supplies: Supplies) -> bool:
    files = machine.files
    if files.is_folder(wanted.path):
        raise RefusedByWindows(f"{wanted.path} is a folder")
    if not files.is_folder(parent(wanted.path)):
        raise RefusedByWindows(f"there is no folder {parent(wanted.path)}")
    copy_into_place(machine, _bytes(machine, wanted, supplies), wanted.path, wanted.sha256, supplies)
    return False


def _bytes(machine: Machine, wanted: File, supplies: Supplies) -> bytes:
    if wanted.member is None:
        origin = f"{supplies.bundle}\\{wanted.source}" if wanted.source else supplies.need_artifact()
        return machine.files.read(origin)
    machine.need_tool("tar.exe")
    data = unpack(machine.files, supplies.need_artifact(), 0).get(wanted.member.replace("/", "\\"))
    if data is None:
        raise RefusedByWindows(f"tar.exe: {wanted.member}: Not found in archive")
    return data
