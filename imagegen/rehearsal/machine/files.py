"""The disk: case-insensitive Windows paths. Touches only the folder of the host that it is given.

An access list is moved and deleted with its file or folder (imagegen.rehearsal.machine.access). So is a file's
read-only attribute: while it is set, the file cannot be written, replaced or deleted.
"""

from __future__ import annotations

import copy
import functools
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.disk import Folder, HostFolder, make_host_folder
from imagegen.rehearsal.machine.refusal import NoSuchFile, RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.rehearsal.machine.access import AccessList
    from imagegen.rehearsal.machine.disk import Entry

FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')
DEVICE = re.compile(r"(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?$")
LONGEST_PATH = 259  # MAX_PATH without its closing NUL; long paths are off on a stock Windows


# Cached, because a plan repeats a few hundred paths.
@functools.lru_cache(maxsize=4096)
def parts(path: str) -> tuple[str, ...]:
    r"""Drive and names of an absolute path; `/` is read as `\`."""
    drive, *names = path.replace("/", "\\").split("\\")
    while names and names[-1] == "":
        names.pop()
    if not re.fullmatch(r"[A-Za-z]:", drive):
        raise RefusedByWindows(f"not an absolute path: {path}")
    for name in names:
        if not name or FORBIDDEN.search(name) or name.endswith((".", " ")) or DEVICE.match(name):
            raise RefusedByWindows(f"not a path that Windows accepts: {path}")
    if len(path) > LONGEST_PATH:
        raise RefusedByWindows(f"the path is longer than {LONGEST_PATH} characters: {path}")
    return (drive.upper(), *names)


def fold(path: str) -> str:
    """A path in the form in which equal paths are compared."""
    return "\\".join(parts(path)).lower()


def parent(path: str) -> str:
    return "\\".join(parts(path)[:-1])


class Files:
    """Files and folders. The only drive is C:. The host has only those that its own programs use, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._drive = Folder()
        self.access_lists: dict[str, AccessList] = {}
        self._read_only: set[str] = set()

    def _find(self, path: str) -> Entry | None:
        drive, *names = parts(path)
        found: Entry | None = self._drive if drive == "C:" else None
        for name in names:
            if not isinstance(found, Folder):
                return None
            found = found.get(name)
        return found

    def _folder(self, path: str) -> Folder:
        found = self._find(path)
        if not isinstance(found, Folder):
            raise RefusedByWindows(f"cannot find folder {path}")
        return found

    def _folder_above(self, path: str) -> tuple[Folder, str]:
        """The folder that a file is in, and the name of the file."""
        *above, name = parts(path)
        found = self._find("\\".join(above)) if above else None
        if not isinstance(found, Folder):
            raise RefusedByWindows(f"cannot find part of the path {path}: there is no folder {parent(path)}")
        return found, name

    def copy(self, root: Path) -> Files:
        """The same files on a disk of their own, all in memory."""
        other = Files(root)
        other._drive, other._read_only = self._drive.copy(), set(self._read_only)
        other.access_lists = copy.deepcopy(self.access_lists)
        return other

    def host_path(self, path: str) -> Path:
        """Where a program of the host finds a copy of a file, or a folder that it uses from now on."""
        entry, names = self._find(path), parts(path)[1:]
        place = self._root.joinpath("C", *names)
        if isinstance(entry, HostFolder):
            return entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, bytes):
            place.write_bytes(entry)
        elif entry is not None:
            folder, name = self._folder_above(path)
            folder.put(name, make_host_folder(place, entry))
        return place

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_folder(self, path: str) -> bool:
        return isinstance(self._find(path), Folder)

    def is_file(self, path: str) -> bool:
        return isinstance(self._find(path), bytes)

    def read(self, path: str) -> bytes:
        found = self._find(path)
        if not isinstance(found, bytes):
            raise NoSuchFile(f"cannot find file {path}")
        return found

    def write(self, path: str, data: bytes) -> None:
        folder, name = self._folder_above(path)
        if isinstance(folder.get(name), Folder):
            raise RefusedByWindows(f"access to {path} is denied: it is a folder")
        self._need_writable(path)
        folder.put(name, data)

    def set_read_only(self, path: str, *, on: bool) -> None:
        if not self.is_file(path):
            raise RefusedByWindows(f"cannot find file {path}")
        if on:
            self._read_only.add(fold(path))
        else:
            self._read_only.discard(fold(path))

    def is_read_only(self, path: str) -> bool:
        return bool(self._read_only) and fold(path) in self._read_only

    def make_folder(self, path: str) -> None:
        """Make a folder and the folders above it, as New-Item does."""
        drive, *names = parts(path)
        if drive != "C:":
            raise RefusedByWindows(f"cannot find drive {drive}")
        folder = self._drive
        for count, name in enumerate(names, 2):
            found = folder.get(name)
            if isinstance(found, bytes):
                above = "\\".join(parts(path)[:count])
                raise RefusedByWindows(f"cannot make folder {path}: {above} is a file")
            folder = folder.make_folder(name) if found is None else found

    def move(self, source: str, target: str) -> None:
        """Move a file. An existing file is replaced."""
        if not self.is_file(source):
            raise RefusedByWindows(f"cannot find file {source}")
        if self.is_folder(target):
            raise RefusedByWindows(f"cannot move {source} to {target}: a folder is there")
        folder, name = self._folder_above(target)
        self._need_writable(target)
        access = self.access_lists.pop(fold(source), None)
        self.access_lists.pop(fold(target), None)
        data = self.read(source)
        old, old_name = self._folder_above(source)
        old.remove(old_name)
        folder.put(name, data)
        if access is not None:
            self.access_lists[fold(target)] = access
        if self.is_read_only(source):
            self._read_only.discard(fold(source))
            self._read_only.add(fold(target))

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content."""
        if not self.exists(path):
            raise RefusedByWindows(f"cannot find path {path}")
        gone = fold(path)
        for known in self._read_only:
            if known == gone or known.startswith(gone + "\\"):
                raise RefusedByWindows(f"access to {known} is denied: it is read-only")
        folder, name = self._folder_above(path)
        folder.remove(name)
        for known in [known for known in self.access_lists if known == gone or known.startswith(gone + "\\")]:
            del self.access_lists[known]

    def names(self, folder: str) -> list[str]:
        return [name for name, _ in self._folder(folder).entries()]

    def below(self, folder: str) -> Iterator[str]:
        """The paths of all files below a folder."""
        yield from _below(self._folder(folder), folder)

    def _need_writable(self, path: str) -> None:
        if self.is_read_only(path):
            raise RefusedByWindows(f"access to {path} is denied: it is read-only")


def _below(folder: Folder, path: str) -> Iterator[str]:
    # A list, because its reader may delete what it found.
    for name, entry in list(folder.entries()):
        if isinstance(entry, Folder):
            yield from _below(entry, f"{path}\\{name}")
        else:
            yield f"{path}\\{name}"
