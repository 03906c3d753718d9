"""Writes trees and files so that nobody ever sees half of one, and names the files of one build's folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from imagegen.build.folder_lock import locked
from imagegen.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FILE_MODE = 0o644
_FOLDER_MODE = 0o755


@dataclasses.dataclass(frozen=True)
class BuildFolder:
    """Where the parts of one build lie: out/<name>/<id>/."""

    root: Path

    @property
    def tree(self) -> Path:
        """What Packer reads."""
        return self.root / "tree"

    @property
    def log(self) -> Path:
        """All that Packer said."""
        return self.root / "packer.log"

    @property
    def journal(self) -> Path:
        """Which runs started what, for this config."""
        return self.root.parent / "journal"

    @property
    def report(self) -> Path:
        """What the guest found on itself."""
        return self.root / "report.json"

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Nobody else uses it meanwhile: another build of the image would delete this one's report and log."""
        with locked(self.root / ".lock", wait_s=0, waiting=self._refuse_second_run):
            yield

    def _refuse_second_run(self) -> None:
        raise RefusedError(
            f"another run is using {self.root}: it builds or publishes the same image",
            hint="wait until it has ended, or name another folder with --out",
        )


def write_tree(tree: Mapping[str, bytes], folder: Path) -> None:
    """Make `folder` hold exactly `tree`; untouched when it already does.

    The new content is complete beside `folder` before it takes its place. Two renames are needed where a folder is
    replaced: between them there is no folder, never a mixture.
    """
    paths = {key: _checked(key) for key in tree}
    if _holds(folder, {path.as_posix(): tree[key] for key, path in paths.items()}):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        new = Path(temporary, "new")
        new.mkdir()
        new.chmod(_FOLDER_MODE)
        for key, content in tree.items():
            _write(new, paths[key], content)
        _put_in_place(new, folder, Path(temporary, "old"))


def write_file(file: Path, content: bytes) -> None:
    """Make `file` hold exactly `content`, whole or not at all; untouched when it already does."""
    if file.is_file() and file.read_bytes() == content:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as temporary:
        new = Path(temporary, file.name)
        new.write_bytes(content)
        new.chmod(_FILE_MODE)
        new.replace(file)


def _put_in_place(new: Path, folder: Path, old: Path) -> None:
    replaced = folder.exists()
    if replaced:
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if replaced:
            old.rename(folder)
        raise


def _checked(key: str) -> PurePosixPath:
    path = PurePosixPath(key)
    plain = path.as_posix() == key and path.parts and not path.is_absolute()
    if not plain or ".." in path.parts or "\\" in key or "\0" in key:
        raise ValueError(f"not the name of a file inside a tree: {key!r}")
    return path


def _write(root: Path, path: PurePosixPath, content: bytes) -> None:
    folder = root
    for part in path.parent.parts:
        folder = folder / part
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(_FOLDER_MODE)
    file = folder / path.name
    file.write_bytes(content)
    file.chmod(_FILE_MODE)


def _holds(folder: Path, tree: Mapping[str, bytes]) -> bool:
    if not folder.is_dir():
        return False
    seen = set()
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        empty = not files and not folders and here != folder
        if empty or any((here / name).is_symlink() for name in folders):
            return False
        for name in files:
            file = here / name
            key = file.relative_to(folder).as_posix()
            if file.is_symlink() or key not in tree or file.read_bytes() != tree[key]:
                return False
            seen.add(key)
    return seen == set(tree)
