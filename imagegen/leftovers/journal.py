"""Records what each run started in which cloud, and how the run ended: one file for each run, to which lines are added.

A run locks its file for as long as it lives, and the system releases the lock however the process dies. A process id
alone is not enough, because the system uses it again. Touches the journal's folder only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar, Final

import pydantic

from imagegen.base.errors import ToolError
from imagegen.base.files import read_file
from imagegen.base.locks import lock

BUILT: Final = "built"
LEFT: Final = "built, and left something"
CLEANED: Final = "cleaned up"
_MACHINE_ID: Final = Path("/etc/machine-id")
# A run writes a few kilobytes.
_LIMIT: Final = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of a run before it makes anything. `place` is what its provider needs to find leftovers."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = {"extra": "forbid", "strict": True}

    run_id: str
    target: str
    image_id: str
    place: dict[str, Any]
    started: str
    expires_at: str
    host: str = dataclasses.field(default_factory=lambda: this_host())
    pid: int = dataclasses.field(default_factory=os.getpid)
    on_error: str = "cleanup"
    """Packer's -on-error option for this run. Journals of earlier versions do not have it."""
    claim: str = ""
    """A name that the cloud accepts once, so that no other run may use it meanwhile; empty where names are unique."""
    provider: str = ""
    """The target's provider. Journals of earlier versions do not have it: a target had its provider's name."""

    @property
    def cloud(self) -> str:
        return self.provider or self.target


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A run as its journal describes it. `is_alive` is known only for runs of this machine (`is_here`)."""

    file: Path
    entry: Entry
    ended: str
    is_here: bool
    is_alive: bool

    @property
    def may_have_left_something(self) -> bool:
        return self.is_here and not self.is_alive and self.ended not in (BUILT, CLEANED)

    @property
    def keeps_leftovers(self) -> bool:
        """Whether the user wants to inspect what the run left."""
        return self.entry.on_error != "cleanup" and self.ended not in (BUILT, LEFT, CLEANED)


def this_host() -> str:
    """The machine's name with its id, if it has one: two machines may have the same name."""
    # A container may not have the file. A file that cannot be read counts as missing.
    with contextlib.suppress(OSError):
        return f"{platform.node()}/{_MACHINE_ID.read_text().strip()}"
    return platform.node()


@contextlib.contextmanager
def recorded(folder: Path, entry: Entry, warn: Callable[[str], None]) -> Iterator[Entry]:
    """Record a run before it starts anything, and at the end how it ended, if the journal can still be written."""
    folder.mkdir(parents=True, exist_ok=True)
    file = file_of(folder, entry.run_id)
    with file.open("xb") as handle:
        lock(handle, file)
        _append(handle, {"event": "started", **dataclasses.asdict(entry)})
        _sync_folder(folder)
        how = "failed"
        try:
            yield entry
            how = BUILT
        except KeyboardInterrupt:
            how = "interrupted"
            raise
        finally:
            # A full disk must not hide the error that ended the run.
            try:
                _append(handle, {"event": "ended", "how": how})
            except OSError as fault:
                warn(f"{file} cannot be written, so the run is recorded without its end ({how}): {fault.strerror}")


def file_of(folder: Path, run_id: str) -> Path:
    """The file in which a run is recorded."""
    return folder / f"{run_id}.jsonl"


def add_end(file: Path, how: str, warn: Callable[[str], None]) -> None:
    """Record how a run ended. The last entry counts. After CLEANED, no later run looks for leftovers again."""
    try:
        with file.open("ab") as handle:
            # The last line may be cut off: start a new one.
            handle.write(b"\n")
            _append(handle, {"event": "ended", "how": how})
    except OSError as fault:
        warn(f"{file} cannot be written, so later runs will not know that the run ended as {how!r}: {fault.strerror}")


def read_runs(out: Path, warn: Callable[[str], None]) -> list[RecordedRun]:
    """Every run below `out`, oldest first. A journal that cannot be read is skipped with a warning."""
    runs = []
    for file in sorted(out.glob("*/journal/*.jsonl"), key=lambda file: file.name):
        try:
            runs.append(_read(file))
        except OSError as fault:
            warn(f"skipping {file}: it cannot be read: {fault.strerror}")
        except ToolError as fault:
            warn(f"skipping a journal: {fault.message}")
    return [run for run in runs if run is not None]


def _read(file: Path) -> RecordedRun | None:
    # Checked before it is opened for its lock: opening a pipe waits for its writer.
    read_file(file, limit=_LIMIT, error=ToolError)
    with file.open("rb") as handle:
        alive = not lock(handle, file, shared=True, wait_s=0)
        events = list(_events(read_file(file, limit=_LIMIT, error=ToolError).splitlines()))
    started = next((event for event in events if event.get("event") == "started"), None)
    if started is None:
        # The run was killed while it wrote its first line, so it started nothing.
        return None
    entry = _entry(file, {name: value for name, value in started.items() if name != "event"})
    ended = [str(event.get("how", "")) for event in events if event.get("event") == "ended"]
    here = entry.host == this_host()
    return RecordedRun(file, entry, ended[-1] if ended else "", is_here=here, is_alive=here and alive)


def _entry(file: Path, facts: dict[str, object]) -> Entry:
    """Validate an entry strictly, because it decides what is removed."""
    try:
        # As JSON, because in strict mode pydantic makes no dataclass from a dictionary.
        entry = pydantic.TypeAdapter(Entry).validate_json(json.dumps(facts))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ToolError(f"{file} is not a valid journal: {where}: {first['msg']}") from None
    if file.stem != entry.run_id:
        raise ToolError(f"{file} is not a valid journal: it is named after another run than {entry.run_id!r}")
    return entry


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, object]]:
    for line in lines:
        # The last line of a killed run may be incomplete.
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _append(handle: IO[bytes], event: dict[str, object]) -> None:
    handle.write(json.dumps(event, sort_keys=True).encode() + b"\n")
    handle.flush()
    os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    # Without this a power cut can lose the new file although its content is synced.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
