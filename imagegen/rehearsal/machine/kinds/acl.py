"""The access rights of a file or folder on the model machine: exactly these entries, none inherited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.access import AccessEntry, effective, write
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.resources.kinds import Acl

WORDS = {"full": "FullControl", "modify": "Modify", "read": "ReadAndExecute"}
RIGHTS = {word: rights for rights, word in WORDS.items()}


def _fact(entry: AccessEntry) -> dict[str, str | bool]:
    rights = RIGHTS.get(entry.rights, entry.rights)
    rights = f"deny {rights}" if entry.deny else rights
    # Such an entry is never a planned one.
    flags = f" ({entry.inheritance}; {entry.propagation})" if entry.is_partial else ""
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
    inherit = machine.files.is_folder(wanted.path)
    entries = [AccessEntry(entry.sid, WORDS[entry.rights], inherit=inherit) for entry in wanted.entries]
    write(machine.files, wanted.path, entries, protected=True)
    return False
