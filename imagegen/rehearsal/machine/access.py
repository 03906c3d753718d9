"""Access lists of files and folders. Entries are inherited from the folders above, up to a protected list."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.files import Files, fold, parent, parts
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEM = "S-1-5-18"
ADMINISTRATORS = "S-1-5-32-544"
USERS = "S-1-5-32-545"
EVERYONE = "S-1-1-0"
AUTHENTICATED_USERS = "S-1-5-11"
CREATOR_OWNER = "S-1-3-0"
# To what below a folder an entry applies, and whether it applies to the folder too.
FILES, FOLDERS, EVERYTHING = "ObjectInherit", "ContainerInherit", "ContainerInherit, ObjectInherit"
ALSO_HERE, ONLY_BELOW = "None", "InheritOnly"
CREATE = "CreateFiles, AppendData"


@dataclasses.dataclass(frozen=True)
class AccessEntry:
    """One entry. `rights` is Windows' own name; with `inherit` the entry applies to everything below."""

    sid: str
    rights: str
    inherit: bool
    deny: bool = False
    inheritance: str = EVERYTHING
    """With `inherit`: to what below it applies, as Windows calls it."""
    propagation: str = ALSO_HERE


@dataclasses.dataclass(frozen=True)
class AccessList:
    """The entries of one file or folder. A protected list inherits none."""

    protected: bool
    entries: tuple[AccessEntry, ...]


NOTHING_WRITTEN = AccessList(protected=False, entries=())


def effective(files: Files, path: str) -> AccessList:
    """The entries that apply to a path, with inherited ones."""
    if not files.exists(path):
        raise RefusedByWindows(f"cannot find path {path}")
    own = files.access_lists.get(fold(path), NOTHING_WRITTEN)
    if own.protected or len(parts(path)) == 1:
        return own
    is_folder = files.is_folder(path)
    above = effective(files, parent(path)).entries
    inherited = tuple(one for entry in above if (one := _inherited(entry, is_folder=is_folder)) is not None)
    return AccessList(protected=False, entries=own.entries + inherited)


def _inherited(entry: AccessEntry, *, is_folder: bool) -> AccessEntry | None:
    """The entry as a file or a folder has it from the folder above."""
    if not entry.inherit or (not is_folder and entry.inheritance == FOLDERS):
        return None
    if not is_folder:
        return dataclasses.replace(entry, inherit=False, inheritance=EVERYTHING, propagation=ALSO_HERE)
    # A folder passes on to its files what does not apply to itself.
    return dataclasses.replace(entry, propagation=ONLY_BELOW if entry.inheritance == FILES else ALSO_HERE)


def write(files: Files, path: str, entries: Iterable[AccessEntry], *, protected: bool) -> None:
    if not files.exists(path):
        raise RefusedByWindows(f"cannot find path {path}")
    files.access_lists[fold(path)] = AccessList(protected, tuple(entries))
