"""Reads what an MSI package has inside: the files in its cabinets, and the programs that its installation runs.

Windows Installer stores cabinets as streams of a compound file, beside its database.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from imagegen.authenticode.compound_file import CompoundFile
from imagegen.authenticode.errors import MalformedData
from imagegen.inspect.cabinet import MAGIC, CabinetError, open_cabinet
from imagegen.inspect.installer_database import Database, NoDatabaseError

if TYPE_CHECKING:
    from imagegen.authenticode.compound_file import Entry

_CHUNK: Final = 1 << 20
# The stream of a program that runs during the installation is named after its table.
_RUN: Final = "Binary."


class PackageError(Exception):
    """The package cannot be read. The message says why, and follows "it"."""


@dataclasses.dataclass(frozen=True)
class PackagedFile:
    """A file in a package, under the name that it gets on the machine."""

    name: str
    chunks: Iterator[bytes]


def open_package(file: Path, scratch: Path) -> Iterator[PackagedFile]:
    """Each file of a package. It can be read until the next is asked for. Cabinets are written to `scratch`."""
    try:
        with file.open("rb") as opened:
            yield from _open(opened, scratch)
    except NoDatabaseError as error:
        raise PackageError("has no database of Windows Installer") from error
    except (MalformedData, struct.error, IndexError) as error:
        raise PackageError(f"is damaged: {error}") from error
    except CabinetError as error:
        raise PackageError(f"has a cabinet that {error}") from error


def _open(file: IO[bytes], scratch: Path) -> Iterator[PackagedFile]:
    compound = CompoundFile(file)
    database = Database(compound)
    # A name is short, or both: SHORT~1.EXE|long name.exe.
    names = {key: name.rpartition("|")[2] for key, name in database.texts("File", "File", "FileName")}
    packed = set[str]()
    for stream, entry in database.streams.items():
        start = next(_read(file, compound, entry), b"")
        if start.startswith(MAGIC):
            cabinet = scratch / "cabinet"
            with cabinet.open("wb") as copy:
                copy.writelines(_read(file, compound, entry))
            for key, chunks in open_cabinet(cabinet):
                packed.add(key)
                yield PackagedFile(names.get(key, key), chunks)
            cabinet.unlink()
        elif stream.startswith(_RUN):
            yield PackagedFile(stream.removeprefix(_RUN), _read(file, compound, entry))
    if missing := sorted(names.keys() - packed):
        raise PackageError(f"does not hold the file {names[missing[0]]}: it is outside of the package")


def _read(file: IO[bytes], compound: CompoundFile, entry: Entry) -> Iterator[bytes]:
    """The bytes of a stream."""
    for start, end in compound.ranges(entry):
        for offset in range(start, end, _CHUNK):
            file.seek(offset)
            yield file.read(min(_CHUNK, end - offset))
