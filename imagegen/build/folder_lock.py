"""One process at a time in a folder: a file lock with a bounded wait. Touches the lock file only."""

from __future__ import annotations

import contextlib
import fcntl
import queue
import threading
from typing import IO, TYPE_CHECKING

from imagegen.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def locked(file: Path, *, wait_s: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold `file`'s lock; `waiting` is called once when another holds it. The system drops it when the holder dies."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        if not take(handle, file, fcntl.LOCK_EX | fcntl.LOCK_NB):
            waiting()
            _acquire(handle, file, wait_s)
        yield


def take(handle: IO[bytes], file: Path, operation: int) -> bool:
    """Whether the lock could be had; where there are no locks, the file is named."""
    try:
        fcntl.flock(handle, operation)
    except BlockingIOError:
        return False
    except OSError as fault:
        raise ToolError(
            f"{file} cannot be locked: {fault.strerror}", hint="put the folder on a file system that has locks"
        ) from fault
    return True


def _acquire(handle: IO[bytes], file: Path, wait_s: float) -> None:
    # flock has no deadline of its own, so it blocks on a thread; one that comes too late holds a file that is closed
    # by then, which gives the lock back.
    outcome: queue.SimpleQueue[ToolError | None] = queue.SimpleQueue()

    def acquire() -> None:
        try:
            take(handle, file, fcntl.LOCK_EX)
        except ToolError as fault:
            outcome.put(fault)
        else:
            outcome.put(None)

    threading.Thread(target=acquire, daemon=True).start()
    try:
        fault = outcome.get(timeout=wait_s)
    except queue.Empty:
        raise ToolError(
            f"another run has held {file} for {wait_s:g} s", hint="wait for it to finish, or end it, and run this again"
        ) from None
    if fault is not None:
        raise fault
