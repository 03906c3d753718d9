"""Folders for as long as one run works in them, and the removal of those that killed runs left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELD: Final = ".held"
# Between making a folder and holding it are milliseconds.
_SURELY_ABANDONED_S: Final = 3600


@contextlib.contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder below `parent`, removed at the end; a killed run's of this prefix is removed by the next."""
    _remove_abandoned(parent, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
        folder = Path(name)
        making = folder / f"{_HELD}.new"
        with making.open("wb") as handle:
            # Locked before it has its name: nobody can see it without the lock. The system drops that with the process.
            fcntl.flock(handle, fcntl.LOCK_EX)
            making.rename(folder / _HELD)
            yield folder


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        # Another run may be removing it too, or be alive.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            status = folder.lstat()
            # Other users may have the same temporary folder.
            if status.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
                continue
            held = folder / _HELD
            if held.exists():
                with held.open("rb") as handle:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            elif time.time() - status.st_mtime > _SURELY_ABANDONED_S:
                # Killed while it was made.
                shutil.rmtree(folder)
