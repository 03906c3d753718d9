"""The access rights of a file or folder on the model machine: exactly these entries, none inherited."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

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
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Acl

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


def _fact(entry: AccessEntry) -> dict[str, str | bool]:
    rights = RIGHTS.get(entry.rights, entry.rights)
    rights = f"deny {rights}" if entry.deny else rights
    usual = (FOLDERS if entry.rights == CREATE else EVERYTHING, ONLY_BELOW if entry.sid == CREATOR_OWNER else ALSO_HERE)
    # An entry with other flags is never a planned one.
    is_usual = not entry.inherit or (entry.inheritance, entry.propagation) == usual
    flags = "" if is_usual else f" ({entry.inheritance}; {entry.propagation})"
    return {"sid": entry.sid, "rights": rights + flags, "inherit": entry.inherit}


def get(machine: Machine, wanted: Acl) -> Facts | None:
    if not machine.files.exists(wanted.path):
        return None
    access = effective(machine.files, wanted.path)
    entries = sorted(map(_fact, access.entries), key=lambda fact: (fact["sid"], fact["rights"], fact["inherit"]))
    return {"protected": access.protected, "entries": entries}


def test(machine: Machine, wanted: Acl, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"there is no {wanted.path}"]
    inherit = machine.files.is_folder(wanted.path)
    have = [f"{entry['sid']} {entry['rights']}, inherit {entry['inherit']}" for entry in facts["entries"]]
    want = [f"{entry.sid} {entry.rights}, inherit {inherit}" for entry in wanted.entries]
    reasons = [] if facts["protected"] else ["it inherits"]
    reasons += [f"there is no entry {entry}" for entry in want if entry not in have]
    reasons += [f"there is an entry {entry}" for entry in have if entry not in want]
    return [*reasons, "an entry is duplicated"] if len(set(have)) < len(have) else reasons


def put(machine: Machine, wanted: Acl, _supplies: Supplies) -> bool:
    machine.need_tool("icacls.exe")
    if not machine.files.exists(wanted.path):
        raise RefusedByWindows(f"there is no {wanted.path}")
    is_folder = machine.files.is_folder(wanted.path)
    entries = [make_entry(entry.sid, entry.rights, is_folder=is_folder) for entry in wanted.entries]
    write(machine.files, wanted.path, entries, protected=True)
    return False
