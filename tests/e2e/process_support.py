"""What tests of processes share: whether one is gone."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path


def assert_gone(pid: int) -> None:
    """A killed process is gone when whoever inherited it has reaped it."""
    deadline = time.monotonic() + 10
    pause = threading.Event()
    while _is_running(pid) and not _is_zombie(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        pause.wait(0.05)


def _is_zombie(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # Reaped meanwhile: before it was opened, or before it was read.
        return False
    return status.rpartition(")")[2].split()[0] == "Z"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
