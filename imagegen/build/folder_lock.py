"""One process at a time in a folder: a file lock with a bounded wait. Touches the lock file only."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import filelock

from imagegen.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def locked(file: Path, *, wait_s: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold `file`'s lock; `waiting` is called once when another holds it. The system drops it when the holder dies."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with _acquired(file, wait_s, waiting):
        yield


def _acquired(file: Path, wait_s: float, waiting: Callable[[], None]) -> contextlib.AbstractContextManager[object]:
    # The library's fallback is a lock that outlives a killed process.
    lock = filelock.FileLock(file, fallback_to_soft=False)
    try:
        with contextlib.suppress(filelock.Timeout):
            return lock.acquire(blocking=False)
        waiting()
        return lock.acquire(timeout=wait_s)
    except filelock.Timeout:
        raise ToolError(
            f"another run has held {file} for {wait_s:g} s", hint="wait for it to finish, or end it, and run this again"
        ) from None
    except OSError as fault:
        raise no_locks(file, fault) from fault


def no_locks(file: Path, fault: OSError) -> ToolError:
    """The error for a file system without locks."""
    return ToolError(
        f"{file} cannot be locked: {fault.strerror}", hint="put the folder on a file system that has locks"
    )
