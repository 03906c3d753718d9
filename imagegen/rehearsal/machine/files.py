"""The disk: case-insensitive Windows paths in a temporary folder. Touches only that folder.

An access list is moved and deleted with its file or folder (imagegen.rehearsal.machine.access). So is a file's
read-only attribute: while it is set, the file cannot be written, replaced or deleted.
"""

from __future__ import annotations

import functools
import re
import shutil
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import NoSuchFile, RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.rehearsal.machine.access import AccessList

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
    """Files and folders below `root`. The only drive is C:."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.access_lists: dict[str, AccessList] = {}
        self._read_only: set[str] = set()
        self._exact: dict[str, Path] = {}
        (root / "C").mkdir(parents=True, exist_ok=True)

    def _real(self, path: str) -> Path:
        exact = self._exact.get(path)
        if exact is None:
            drive, *names = parts(path)
            if drive != "C:":
                raise RefusedByWindows(f"cannot find drive {drive}")
            exact = self._exact[path] = self._root.joinpath("C", *names)
        # Nearly always as it was written, or at least its folder: that is faster than a lookup of each name.
        return exact if exact.exists() else self._find(parts(path)[1:])

    def _find(self, names: tuple[str, ...]) -> Path:
        exact = self._root.joinpath("C", *names)
        if not names or exact.exists():
            return exact
        return self._child(self._find(names[:-1]), names[-1])

    @staticmethod
    def _child(folder: Path, name: str) -> Path:
        exact = folder / name
        if exact.exists() or not folder.is_dir():
            return exact
        return next((child for child in folder.iterdir() if child.name.lower() == name.lower()), exact)

    def copy_to(self, root: Path) -> None:
        """Copy everything below another root, and use only the copy from now on."""
        shutil.copytree(self._root, root, dirs_exist_ok=True)
        self._root, self._exact = root, {}

    def host_path(self, path: str) -> Path:
        """Where the host keeps a file or folder, for a program of the host that writes to it itself."""
        return self._real(path)

    def exists(self, path: str) -> bool:
        return parts(path)[0] == "C:" and self._real(path).exists()

    def is_folder(self, path: str) -> bool:
        return parts(path)[0] == "C:" and self._real(path).is_dir()

    def is_file(self, path: str) -> bool:
        return parts(path)[0] == "C:" and self._real(path).is_file()

    def read(self, path: str) -> bytes:
        if not self.is_file(path):
            raise NoSuchFile(f"cannot find file {path}")
        return self._real(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        self._need_folder_above(path)
        if self.is_folder(path):
            raise RefusedByWindows(f"access to {path} is denied: it is a folder")
        self._need_writable(path)
        self._real(path).write_bytes(data)

    def set_read_only(self, path: str, *, on: bool) -> None:
        if not self.is_file(path):
            raise RefusedByWindows(f"cannot find file {path}")
        if on:
            self._read_only.add(fold(path))
        else:
            self._read_only.discard(fold(path))

    def is_read_only(self, path: str) -> bool:
        return fold(path) in self._read_only

    def make_folder(self, path: str) -> None:
        """Make a folder and the folders above it, as New-Item does."""
        names = parts(path)
        if self.is_folder(path):
            return
        for count in range(1, len(names) + 1):
            above = "\\".join(names[:count])
            if self.is_file(above):
                raise RefusedByWindows(f"cannot make folder {path}: {above} is a file")
            if not self.is_folder(above):
                self._real(above).mkdir()

    def move(self, source: str, target: str) -> None:
        """Move a file. An existing file is replaced."""
        if not self.is_file(source):
            raise RefusedByWindows(f"cannot find file {source}")
        if self.is_folder(target):
            raise RefusedByWindows(f"cannot move {source} to {target}: a folder is there")
        self._need_folder_above(target)
        self._need_writable(target)
        access = self.access_lists.pop(fold(source), None)
        self.access_lists.pop(fold(target), None)
        self._real(source).replace(self._real(target))
        if access is not None:
            self.access_lists[fold(target)] = access
        if self.is_read_only(source):
            self._read_only.discard(fold(source))
            self._read_only.add(fold(target))

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content."""
        if not self.exists(path):
            raise RefusedByWindows(f"cannot find path {path}")
        real = self._real(path)
        gone = fold(path)
        for known in self._read_only:
            if known == gone or known.startswith(gone + "\\"):
                raise RefusedByWindows(f"access to {known} is denied: it is read-only")
        if real.is_dir():
            shutil.rmtree(real)
        else:
            real.unlink()
        for known in [known for known in self.access_lists if known == gone or known.startswith(gone + "\\")]:
            del self.access_lists[known]

    def names(self, folder: str) -> list[str]:
        if not self.is_folder(folder):
            raise RefusedByWindows(f"cannot find folder {folder}")
        return sorted(child.name for child in self._real(folder).iterdir())

    def below(self, folder: str) -> Iterator[str]:
        """The paths of all files below a folder."""
        if not self.is_folder(folder):
            raise RefusedByWindows(f"cannot find folder {folder}")
        yield from _below(self._real(folder), folder)

    def _need_writable(self, path: str) -> None:
        if self.is_read_only(path):
            raise RefusedByWindows(f"access to {path} is denied: it is read-only")

    def _need_folder_above(self, path: str) -> None:
        folder = parent(path)
        if not self.is_folder(folder):
            raise RefusedByWindows(f"cannot find part of the path {path}: there is no folder {folder}")


def _below(real: Path, folder: str) -> Iterator[str]:
    for child in sorted(real.iterdir()):
        path = f"{folder}\\{child.name}"
        if child.is_dir():
            yield from _below(child, path)
        else:
            yield path
