"""The programs that a cloud adds to Windows in its images, and what the cloud's generalise script does with them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.boot.model import Ended, Process, Program
    from imagegen.rehearsal.machine.answers import AnswerFile
    from imagegen.rehearsal.machine.windows import Machine

# name, display name, command, start, depends on
StockService = tuple[str, str, str, int, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Agents:
    """The cloud's programs on the machine."""

    services: tuple[StockService, ...]
    files: tuple[str, ...]
    folders: tuple[str, ...]
    check: Callable[[Machine], None]
    """Raises an error if they are not ready for sealing."""
    answer_file: str
    """The answer file with which sealing calls sysprep."""
    reset: Callable[[Machine], None] | None = None
    """Resets them when the machine is sealed."""
    leftovers: tuple[str, ...] = ()
    """Files that they left on the builder."""
    left_folders: tuple[tuple[str, str], ...] = ()
    """The folders of the leftovers that sealing deletes, in order, by the folder above and a pattern. One from which a
    service runs stays."""
    logs: str = ""
    """The folder with their logs, which sealing deletes, except open ones."""
    extensions: str = ""
    """The folder of the cloud's extensions. Sealing refuses one that is a service."""
    state: str = ""
    """The key of the registry in which they keep what they know of extensions, which sealing deletes."""
    traces: tuple[tuple[str, str], ...] = ()
    """What they write that an image must not have: its name, and a pattern of its path in lower case."""
    trims: bool = False
    """Whether the cloud's disks take back the blocks of deleted files."""
    open_files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The service that has a file open, by the file."""
    answers: AnswerFile | None = None
    """The contents of the answer file, if the cloud's programs bring it."""
    administrator: str = "Administrator"
    """The name that the cloud gives the built-in administrator of the builder."""
    programs: Mapping[str, Program] = dataclasses.field(default_factory=dict)
    """The programs that Windows Setup runs, by the name of their file."""
    run_at_boot: Callable[[Machine, bytes, Callable[[Process], Ended]], list[str]] | None = None
    """What they do with the user data at every start after Windows Setup. Returns the user data's scripts that ran."""
