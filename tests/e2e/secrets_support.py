"""Shared code of the tests that look for secrets: every form of a text, and where one was left."""

from __future__ import annotations

import base64
import contextlib
import threading
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imagegen.rehearsal.machine import Machine


def markers_of(texts: Iterable[str]) -> list[bytes]:
    """The forms in which a program could leave a text: the encodings of Windows, of URLs and of Packer's uploads."""
    texts = [*texts]
    # Base64 of a text within a longer one has one of three forms.
    shifted = [
        base64.b64encode(b" " * pad + text.encode())[4 : 4 * (len(text) // 3)] for text in texts for pad in range(3)
    ]
    quoted = [urllib.parse.quote(text, safe="").encode() for text in texts]
    return [*(text.encode() for text in texts), *(text.encode("utf-16-le") for text in texts), *shifted, *quoted]


def kept_in(machine: Machine, folder: Path, markers: list[bytes]) -> list[str]:
    """The files on the machine and on the host that have a marker."""
    files = machine.files
    on_machine = {path: files.read(path) for path in files.below("C:") if files.is_file(path)}
    on_host = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return [path for path, data in {**on_machine, **on_host}.items() if any(marker in data for marker in markers)]


class CommandLines:
    """Every command line of this machine that was seen, each once."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def look(self) -> None:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            # A process may end meanwhile.
            with contextlib.suppress(OSError):
                self.seen.add(entry.read_bytes())

    def having(self, markers: list[bytes]) -> list[bytes]:
        return [line for line in list(self.seen) if any(marker in line for marker in markers)]


@contextlib.contextmanager
def command_lines() -> Iterator[CommandLines]:
    """Looks at the command lines of all processes again and again, until the block ends."""
    found, ended = CommandLines(), threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            found.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
