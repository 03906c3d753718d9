"""Says on disk which run started what in which cloud, and how it ended: one file for each run, lines only added.

A run holds a lock on its file for as long as it lives, and the system drops the lock when the process dies, however it
dies: a process id alone would soon be another process's. The lock is this module's own, because the filelock package
cannot ask whether a lock is held without taking it from the run that comes. Touches the journal's folder only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import platform
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final

import pydantic

from imagegen.build.folder_lock import no_locks
from imagegen.errors import ToolError
from imagegen.files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic import ConfigDict

BUILT: Final = "built"
LEFT: Final = "built, and left something"
CLEANED: Final = "cleaned up"
_FAILED: Final = "failed"
_INTERRUPTED: Final = "interrupted"
_MACHINE_ID: Final = Path("/etc/machine-id")
# A run writes some kilobytes.
_LIMIT: Final = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of a run before it makes anything; `place` is what the cloud's provider needs to look there."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "strict": True}

    run_id: str
    target: str
    image_id: str
    place: dict[str, Any]
    started: str
    expires_at: str
    host: str = dataclasses.field(default_factory=lambda: this_host())
    pid: int = dataclasses.field(default_factory=os.getpid)
    on_error: str = "cleanup"
    """What Packer was told to do with its machine when the build fails; journals of earlier versions do not say it."""
    claim: str = ""
    """What no other run may make meanwhile, where the cloud takes a name once; empty where names differ anyway."""
    provider: str = ""
    """The target's cloud; journals of earlier versions do not say it, because a target had its cloud's name."""

    @property
    def cloud(self) -> str:
        return self.provider or self.target


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A run as its journal tells it. `is_here`: it ran on this machine, and only then `is_alive` says anything."""

    file: Path
    entry: Entry
    ended: str
    is_here: bool
    is_alive: bool

    @property
    def may_have_left_something(self) -> bool:
        return self.is_here and not self.is_alive and self.ended not in (BUILT, CLEANED)

    @property
    def keeps(self) -> bool:
        """Whether somebody wants to look into what it left."""
        return self.entry.on_error != "cleanup" and self.ended not in (BUILT, LEFT, CLEANED)


def this_host() -> str:
    """The machine's name, with its id where it has one: names repeat."""
    # A container need not have the file; one that cannot be read is none.
    with contextlib.suppress(OSError):
        return f"{platform.node()}/{_MACHINE_ID.read_text().strip()}"
    return platform.node()


@contextlib.contextmanager
def recorded(folder: Path, entry: Entry, warn: Callable[[str], None]) -> Iterator[Entry]:
    """The run is in the journal before anything is started, and so is how it ended, if that can be written still."""
    folder.mkdir(parents=True, exist_ok=True)
    file = file_of(folder, entry.run_id)
    with file.open("xb") as handle:
        _lock(handle, file, fcntl.LOCK_EX)
        _append(handle, {"event": "started", **dataclasses.asdict(entry)})
        _sync_folder(folder)
        try:
            yield entry
        except KeyboardInterrupt:
            _end(handle, file, _INTERRUPTED, warn)
            raise
        except BaseException:
            _end(handle, file, _FAILED, warn)
            raise
        _end(handle, file, BUILT, warn)


def file_of(folder: Path, run_id: str) -> Path:
    """Where a run is recorded."""
    return folder / f"{run_id}.jsonl"


def close(run: RecordedRun, warn: Callable[[str], None]) -> None:
    """Nothing of this run is left: nobody needs to look again."""
    add_end(run.file, CLEANED, warn)


def add_end(file: Path, how: str, warn: Callable[[str], None]) -> None:
    """What became of a run after its end; the last word counts."""
    try:
        with file.open("ab") as handle:
            # After a last line that was cut off, this one is still a line of its own.
            handle.write(b"\n")
            _append(handle, {"event": "ended", "how": how})
    except OSError as fault:
        warn(f"{file} cannot be written, and what became of the run ({how}) is not known later: {fault.strerror}")


def read_runs(out: Path, warn: Callable[[str], None]) -> list[RecordedRun]:
    """Every run below `out`, oldest first; a journal that cannot be read is named and passed over."""
    files = sorted(out.glob("*/journal/*.jsonl"), key=lambda file: file.name)
    runs = []
    for file in files:
        try:
            runs.append(_read(file))
        except OSError as fault:
            warn(f"{file} is passed over, it cannot be read: {fault.strerror}")
        except ToolError as fault:
            warn(f"{fault.message}; it is passed over")
    return [run for run in runs if run is not None]


def _read(file: Path) -> RecordedRun | None:
    # Before it is opened for its lock: a pipe would wait for whoever writes to it.
    read_file(file, limit=_LIMIT, error=ToolError)
    with file.open("rb") as handle:
        alive = not _lock(handle, file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        events = list(_events(read_file(file, limit=_LIMIT, error=ToolError).splitlines()))
    started = next((event for event in events if event.get("event") == "started"), None)
    if started is None:
        # Killed while it wrote its first line: nothing was started.
        return None
    entry = _entry(file, {name: value for name, value in started.items() if name != "event"})
    ended = [str(event.get("how", "")) for event in events if event.get("event") == "ended"]
    here = entry.host == this_host()
    return RecordedRun(file, entry, ended[-1] if ended else "", is_here=here, is_alive=here and alive)


def _entry(file: Path, facts: dict[str, object]) -> Entry:
    """Closed and typed: what is no run's must not decide what is removed."""
    try:
        # As JSON, because from a dictionary nothing strict makes a dataclass.
        entry = pydantic.TypeAdapter(Entry).validate_json(json.dumps(facts))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ToolError(f"{file} is not the journal of a run: {where}: {first['msg']}") from None
    if file.stem != entry.run_id:
        raise ToolError(f"{file} is not the journal of a run: it names run {entry.run_id!r}")
    return entry


def _lock(handle: IO[bytes], file: Path, operation: int) -> bool:
    """Whether the lock could be had."""
    try:
        fcntl.flock(handle, operation)
    except BlockingIOError:
        return False
    except OSError as fault:
        raise no_locks(file, fault) from fault
    return True


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, object]]:
    for line in lines:
        # The last line of a run that was killed may be half of one.
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _end(handle: IO[bytes], file: Path, how: str, warn: Callable[[str], None]) -> None:
    # What the run itself ended with is what counts, also on a disk that is full.
    try:
        _append(handle, {"event": "ended", "how": how})
    except OSError as fault:
        warn(f"how the run ended ({how}) could not be written to {file}: {fault.strerror}")


def _append(handle: IO[bytes], event: dict[str, object]) -> None:
    handle.write(json.dumps(event, sort_keys=True).encode() + b"\n")
    handle.flush()
    os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    # A file is not there after a power cut before its folder is.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
