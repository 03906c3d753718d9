"""Temporary folders that are removed at the end of a run, or by the next run if a run was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HELD: Final = ".held"
# A run locks its folder within milliseconds after it made it.
_SURELY_ABANDONED_S: Final = 3600


@contextlib.contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder below `parent`, removed at the end. Also removes the folders of killed runs with this prefix."""
    _remove_abandoned(parent, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
        folder = Path(name)
        making = folder / f"{_HELD}.new"
        with making.open("wb") as handle:
            # Locked before the rename, so the file never has its name without the lock. The lock ends with the process.
            fcntl.flock(handle, fcntl.LOCK_EX)
            making.rename(folder / _HELD)
            yield folder


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        # Another run may be removing the folder too, or may still use it.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            status = folder.lstat()
            # Other users may share the folder for temporary files.
            if status.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
                continue
            held = folder / _HELD
            if held.exists():
                with held.open("rb") as handle:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            elif time.time() - status.st_mtime > _SURELY_ABANDONED_S:
                # The run was killed while it made the folder.
                shutil.rmtree(folder)
