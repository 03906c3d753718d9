"""A cloud's storage of files: addresses of private files that are valid for some time, and a place for a mirror."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from imagegen.providers.registry import parts

if TYPE_CHECKING:
    from imagegen.providers import RunFacts


Sign = Callable[[Sequence[str], float], Mapping[str, str]]
"""Returns addresses, by these URLs, with which everybody can read the files for so many seconds.

Raises a RefusedError with the reason if the cloud grants less."""


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file in a storage. `sha256` is what the storage itself keeps, empty if it keeps none."""

    size: int
    sha256: str


class FileStore(Protocol):
    """A folder in a storage. The paths in it are relative, with slashes. A file appears only when it is complete.

    Several threads may use it. Its errors are those of imagegen.
    """

    def find(self, path: str) -> StoredFile | None:
        """What is at a path; None if there is nothing."""

    def put(self, path: str, file: Path, sha256: str) -> None:
        """Store a file with this digest, which the storage compares where it can."""

    def read(self, path: str, limit: int) -> tuple[bytes, str] | None:
        """The bytes of a file of at most `limit` bytes, and a tag of this version; None if there is none."""

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        """Replace the version with this tag; an empty tag means that there is no file yet. False if another run was
        quicker: then nothing is changed."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """What a cloud can do with files."""

    scheme: str
    """How an address of a folder begins on the command line, without `://`."""
    form: str
    """The form of such an address, for hints."""
    is_host: Callable[[str], bool]
    """Whether a host of https URLs belongs to this storage."""
    signer: Callable[[RunFacts], Sign]
    """What makes addresses in this run. One thread at a time may use it."""
    open: Callable[[str, RunFacts], AbstractContextManager[FileStore]]
    """The folder at an address of this form, which may be empty."""


def storages() -> dict[str, Storage]:
    """The storage of each provider that has one."""
    return {name: cast("Storage", module.STORAGE) for name, module in parts("storage").items()}
