"""The folders of the disk. A file is its bytes.

They are in memory: a rehearsal looks at its files tens of thousands of times, and the tests have thousands of machines.
Only a folder in which a program of the host works is on the host's disk.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Entry: TypeAlias = "bytes | Folder"


class Folder:
    """A folder in memory. A name is found in any case, and stays as it was first written."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, Entry]] = {}

    def get(self, name: str) -> Entry | None:
        found = self._entries.get(name.lower())
        return found[1] if found else None

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """The names and what they name, sorted."""
        yield from sorted(self._entries.values(), key=lambda entry: entry[0])

    def put(self, name: str, entry: Entry) -> None:
        known = self._entries.get(name.lower())
        self._entries[name.lower()] = (known[0] if known else name, entry)

    def make_folder(self, name: str) -> Folder:
        made = Folder()
        self.put(name, made)
        return made

    def remove(self, name: str) -> None:
        del self._entries[name.lower()]

    def copy(self) -> Folder:
        """A folder in memory with the same content."""
        other = Folder()
        for name, entry in self.entries():
            other.put(name, entry.copy() if isinstance(entry, Folder) else entry)
        return other


class HostFolder(Folder):
    """A folder of the host. It is read each time, because a program of the host writes to it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def get(self, name: str) -> Entry | None:
        return self._read(self._find(name))

    def entries(self) -> Iterator[tuple[str, Entry]]:
        for path in sorted(self.path.iterdir()):
            if (entry := self._read(path)) is not None:
                yield path.name, entry

    def put(self, name: str, entry: Entry) -> None:
        target = self._find(name)
        if isinstance(entry, Folder):
            make_host_folder(target, entry)
        else:
            target.write_bytes(entry)

    def make_folder(self, name: str) -> Folder:
        return make_host_folder(self._find(name), Folder())

    def remove(self, name: str) -> None:
        found = self._find(name)
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink()

    def _find(self, name: str) -> Path:
        known = (path for path in self.path.iterdir() if path.name.lower() == name.lower())
        return next(known, self.path / name)

    @staticmethod
    def _read(path: Path) -> Entry | None:
        if path.is_dir():
            return HostFolder(path)
        return path.read_bytes() if path.is_file() else None


def make_host_folder(path: Path, source: Folder) -> HostFolder:
    """Make a folder of the host with the content of a folder. What the host has there is of an earlier folder."""
    if path.exists():
        shutil.rmtree(path)
    path.mkdir()
    folder = HostFolder(path)
    for name, entry in source.entries():
        folder.put(name, entry)
    return folder
