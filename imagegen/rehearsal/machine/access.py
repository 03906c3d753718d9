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


@dataclasses.dataclass(frozen=True)
class AccessEntry:
    """One entry. `rights` is Windows' own name; with `inherit` the entry applies to everything below."""

    sid: str
    rights: str
    inherit: bool
    deny: bool = False


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
    inherited = tuple(
        dataclasses.replace(entry, inherit=is_folder)
        for entry in effective(files, parent(path)).entries
        if entry.inherit
    )
    return AccessList(protected=False, entries=own.entries + inherited)


def write(files: Files, path: str, entries: Iterable[AccessEntry], *, protected: bool) -> None:
    if not files.exists(path):
        raise RefusedByWindows(f"cannot find path {path}")
    files.access_lists[fold(path)] = AccessList(protected, tuple(entries))
