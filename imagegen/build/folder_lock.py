"""Lets one process at a time use a folder: a file lock with a bounded wait. Touches the lock file only."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from imagegen.errors import ToolError


@contextlib.contextmanager
def locked(file: Path, *, wait_s: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `file`; call `waiting` once if another process holds it. The lock ends with its process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with _acquire(file, wait_s, waiting):
        yield


def _acquire(file: Path, wait_s: float, waiting: Callable[[], None]) -> contextlib.AbstractContextManager[object]:
    # The library's fallback, a soft lock, stays locked after its process was killed.
    lock = filelock.FileLock(file, fallback_to_soft=False)
    try:
        with contextlib.suppress(filelock.Timeout):
            return lock.acquire(blocking=False)
        waiting()
        return lock.acquire(timeout=wait_s)
    except filelock.Timeout:
        raise ToolError(
            f"another run has held the lock {file} for {wait_s:g} s", hint="wait until it ends, or stop it; then retry"
        ) from None
    except OSError as fault:
        raise lock_error(file, fault) from fault


def lock_error(file: Path, fault: OSError) -> ToolError:
    """The error where a file cannot be locked."""
    return ToolError(
        f"{file} cannot be locked: {fault.strerror}", hint="use a folder on a file system that supports locks"
    )
