"""One bounded reader for files that a user names: a config, what it extends, a lock, a manifest.

A name may lead to a device without an end, a pipe that nobody writes to, or a file larger than the memory."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from imagegen.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.errors import ImagegenError

_CHUNK: Final = 1024 * 1024

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_name(path: Path) -> None:
    """Refuses a name that is no text: it could be written neither into a plan nor into a manifest."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise ConfigError(f"the name {shown} is not UTF-8", hint="rename it, so that it can be recorded") from None


def read_file(
    path: Path, *, limit: int, shown_as: str | None = None, error: type[ImagegenError] = ConfigError
) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; anything else is an `error` that names the file.

    A file that is not there stays a FileNotFoundError: only the caller knows what its absence means."""
    file = shown_as or str(path)
    try:
        # Opening a pipe waits for its writer, unless it is told not to.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as failed:
        # A name with a null character is a ValueError.
        raise error(f"{file} cannot be read: {getattr(failed, 'strerror', failed)}") from None
    try:
        return _read(handle, file, limit, error)
    except OSError as failed:
        raise error(f"{file} cannot be read: {failed.strerror}") from None
    finally:
        os.close(handle)


def _read(handle: int, file: str, limit: int, error: type[ImagegenError]) -> bytes:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise error(f"{file} is {kind}, not a regular file", hint="name a regular file")
    if status.st_size > limit:
        raise _too_large(file, f"{status.st_size}", limit, error)
    data = bytearray()
    # The size may be 0 for what the kernel makes while it is read, and the file may grow.
    while chunk := os.read(handle, min(_CHUNK, limit + 1 - len(data))):
        data += chunk
        if len(data) > limit:
            raise _too_large(file, f"more than {limit}", limit, error)
    return bytes(data)


def _too_large(file: str, size: str, limit: int, error: type[ImagegenError]) -> ImagegenError:
    return error(f"{file} is too large: it has {size} bytes, and at most {limit} are read", hint="name a smaller file")
