"""Locks of files: how runs on one machine keep out of each other's way.

The system releases a lock when its process ends, however that happens. Every lock of imagegen is taken here."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from imagegen.base.errors import ToolError

_POLL_S: Final = 0.05


def lock(handle: IO[bytes] | int, file: Path, *, shared: bool = False, wait_s: float | None = None) -> bool:
    """Lock an open file, at the latest after `wait_s`, or however long that takes. Returns whether it is locked now."""
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + wait_s if wait_s is not None else None
    while True:
        try:
            fcntl.flock(handle, operation if deadline is None else operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        except OSError as fault:
            hint = "use a folder on a file system that supports locks"
            raise ToolError(f"{file} cannot be locked: {fault.strerror}", hint=hint) from fault
        else:
            return True


def unlock(handle: IO[bytes]) -> None:
    """Release the lock of a file that stays open."""
    fcntl.flock(handle, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(file: Path, *, wait_s: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `file`, which stays. Calls `waiting` once if another process holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        if not lock(handle, file, wait_s=0):
            waiting()
            if not lock(handle, file, wait_s=wait_s):
                raise ToolError(
                    f"another run has held the lock {file} for {wait_s:g} s",
                    hint="wait until it ends, or stop it; then retry",
                )
        yield
