"""The temporary folder of one rehearsal, and the removal of those that killed rehearsals left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX: Final = "imagegen-rehearsal-"
_HELD: Final = ".held"


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder below `parent`, removed at the end; a killed run's is removed by the next."""
    _remove_abandoned(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        folder = Path(name)
        making = folder / f"{_HELD}.new"
        with making.open("wb") as handle:
            # Locked before it has its name: nobody can see it without the lock. The system drops that with the process.
            fcntl.flock(handle, fcntl.LOCK_EX)
            making.rename(folder / _HELD)
            yield folder


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        # Another run may be removing it too, or be alive, or be making its folder just now.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            # Other users may have the same temporary folder.
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                with (folder / _HELD).open("rb") as handle:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
