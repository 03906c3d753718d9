"""Tells what one file is, and what is in it. Reads the file only, and trusts nothing in it."""

import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from imagegen.artifacts.archive import ArchiveFormat, FileType, find_type, open_members
from imagegen.artifacts.download import LIMIT_BYTES
from imagegen.errors import ConfigError

_START: Final = 1024


@dataclasses.dataclass(frozen=True)
class Content:
    """A file, or a file of an archive: its type, and what its bytes are."""

    type: FileType
    size: int
    sha256: str

    @classmethod
    def read(cls, chunks: Iterable[bytes]) -> Self:
        start, size, digest = b"", 0, hashlib.sha256()
        for chunk in chunks:
            start += chunk[: _START - len(start)]
            size += len(chunk)
            digest.update(chunk)
        return cls(find_type(start), size, digest.hexdigest())


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What one file is. `members` are the files of an archive by their paths; None for any other file."""

    content: Content
    members: dict[str, Content] | None


def inspect_file(file: Path, name: str) -> Inspection:
    """Read a file. `name` is for messages."""
    if not file.is_file():
        what = "is not a regular file" if file.exists() else "does not exist"
        raise ConfigError(f"{name} {what}", hint="give the path of a file, or a URL that starts with https://")
    if file.stat().st_size > LIMIT_BYTES:
        raise ConfigError(f"{name} is larger than {LIMIT_BYTES // 2**30} GiB", hint="imagegen uses no larger file")
    with file.open("rb") as opened:
        content = Content.read(iter(lambda: opened.read(1 << 20), b""))
    return Inspection(content, _read_members(file, content.type, name))


def _read_members(file: Path, kind: FileType, name: str) -> dict[str, Content] | None:
    form: ArchiveFormat
    if kind not in ("zip", "tar.gz", "tar"):
        return None
    form = kind
    return {member.path: Content.read(member.chunks()) for member in open_members(file, form, name)}
