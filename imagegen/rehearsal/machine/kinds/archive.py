"""An archive's files in a folder of the model machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.archives import unpack
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.kinds.kind import copy_into_place, digest, file_facts
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Archive


def get(machine: Machine, wanted: Archive) -> Facts | None:
    files = machine.files
    if not files.is_folder(wanted.into):
        return None
    paths = {member.path: f"{wanted.into}\\{member.path}" for member in wanted.members}
    return {
        "members": {name: file_facts(files.read(path)) if files.is_file(path) else None for name, path in paths.items()}
    }


def test(_machine: Machine, wanted: Archive, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no folder {wanted.into}"]
    reasons = []
    for member in wanted.members:
        found = facts["members"][member.path]
        if found is None:
            reasons.append(f"{member.path} is not there")
        elif found["sha256"] != member.sha256:
            reasons.append(f"sha256 of {member.path} is {found['sha256']}, not {member.sha256}")
    return reasons


def put(machine: Machine, wanted: Archive, supplies: Supplies) -> bool:
    if not machine.files.is_folder(wanted.into):
        raise RefusedByWindows(f"there is no folder {wanted.into} for archive {wanted.artifact}")
    machine.need_tool("tar.exe")
    unpacked = unpack(machine.files, supplies.need_artifact(), wanted.strip)
    others = {name.lower(): (name, data) for name, data in unpacked.items() if data is not None}
    for member in wanted.members:
        if member.path.lower() not in others:
            raise RefusedByWindows(
                f"tar.exe unpacked no {member.path}, which the plan has of archive {wanted.artifact}"
            )
        _, data = others.pop(member.path.lower())
        path = f"{wanted.into}\\{member.path}"
        machine.files.make_folder(parent(path))
        if not (machine.files.is_file(path) and digest(machine.files.read(path)) == member.sha256):
            copy_into_place(machine, data, path, member.sha256, supplies)
    supplies.left_out.extend(sorted(name for name, _ in others.values()))
    return False
