"""Folders that one process at a time uses: file locks with a bounded wait, and the paths in one build's folder."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from imagegen.base.errors import RefusedError, ToolError


@contextlib.contextmanager
def locked(file: Path, *, wait_s: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `file`; call `waiting` once if another process holds it. The lock ends with its process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # The library's fallback, a soft lock, stays locked after its process was killed.
    lock = filelock.FileLock(file, fallback_to_soft=False)
    try:
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            waiting()
            lock.acquire(timeout=wait_s)
    except filelock.Timeout:
        raise ToolError(
            f"another run has held the lock {file} for {wait_s:g} s", hint="wait until it ends, or stop it; then retry"
        ) from None
    except OSError as fault:
        raise lock_error(file, fault) from fault
    try:
        yield
    finally:
        lock.release()


def lock_error(file: Path, fault: OSError) -> ToolError:
    """The error where a file cannot be locked."""
    return ToolError(
        f"{file} cannot be locked: {fault.strerror}", hint="use a folder on a file system that supports locks"
    )


@dataclasses.dataclass(frozen=True)
class BuildFolder:
    """The folder of one build: out/<name>/<id>/."""

    root: Path

    @property
    def tree(self) -> Path:
        """What Packer reads."""
        return self.root / "tree"

    @property
    def log(self) -> Path:
        """The log of Packer's output."""
        return self.root / "packer.log"

    @property
    def journal(self) -> Path:
        """The journals of the runs of this config."""
        return self.root.parent / "journal"

    def report(self, run_id: str) -> Path:
        """The report of the machine of a run. The file has the run's name, so that it is taken for no other image's."""
        return self.root / "reports" / f"{run_id}.json"

    @property
    def verdict_pipe(self) -> Path:
        """The named pipe on which Packer waits for the verdict on the report."""
        return self.root / "verdict.pipe"

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder: another build of the image would delete this one's report and log."""
        with locked(self.root / ".lock", wait_s=0, waiting=self._refuse_second_run):
            yield

    def _refuse_second_run(self) -> None:
        raise RefusedError(
            f"another run is using {self.root}: it builds or publishes the same image",
            hint="wait until it ends, or use another folder with --out",
        )
