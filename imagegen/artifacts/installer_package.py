"""Reads what an MSI package has inside: the files in its cabinets, and the programs that its installation runs.

Windows Installer stores a database in a compound file: tables as streams, column by column, whose texts are numbers of
a pool, and cabinets as streams too.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from imagegen.artifacts.cabinet import MAGIC, CabinetError, open_cabinet
from imagegen.authenticode.compound_file import STREAM, CompoundFile
from imagegen.authenticode.errors import MalformedData

if TYPE_CHECKING:
    from imagegen.authenticode.compound_file import Entry

_CHUNK: Final = 1 << 20
_LARGEST_TABLE: Final = 64 << 20
# Names of streams hold two characters of this alphabet in one of UTF-16, or one, or mark a table.
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
_PAIRS, _SINGLES, _TABLE_MARK = range(0x3800, 0x4800), range(0x4800, 0x4840), 0x4840
_TABLE: Final = "!"
# The stream of a program that runs during the installation is named after its table.
_RUN: Final = "Binary."
_WIDE_POOL: Final = 0x8000_0000
_IS_TEXT, _SIZE = 0x0800, 0xFF
_COLUMNS: Final = (("Table", True, 2), ("Number", False, 2), ("Name", True, 2), ("Type", False, 2))


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
    except (MalformedData, struct.error, IndexError) as error:
        raise PackageError(f"is damaged: {error}") from error
    except CabinetError as error:
        raise PackageError(f"has a cabinet that {error}") from error


def _open(file: IO[bytes], scratch: Path) -> Iterator[PackagedFile]:
    compound = CompoundFile(file)
    streams = {_decode(entry.name): entry for entry in compound.root.children if entry.kind == STREAM}
    if f"{_TABLE}_StringPool" not in streams:
        raise PackageError("has no database of Windows Installer")
    names = _file_names(compound, streams)
    packed = set[str]()
    for stream, entry in streams.items():
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


def _decode(name: bytes) -> str:
    """The name of a stream; with a mark before it if it is a table."""
    decoded = ""
    for (unit,) in struct.iter_unpack("<H", name):
        if unit in _PAIRS:
            pair = unit - _PAIRS.start
            decoded += _ALPHABET[pair & 0x3F] + _ALPHABET[pair >> 6]
        elif unit in _SINGLES:
            decoded += _ALPHABET[unit - _SINGLES.start]
        else:
            decoded += _TABLE if unit == _TABLE_MARK else chr(unit)
    return decoded


def _file_names(compound: CompoundFile, streams: Mapping[str, Entry]) -> dict[str, str]:
    """The names of the files on the machine, by their keys, which they have in the cabinets."""

    def stream(name: str) -> bytes:
        if _TABLE + name not in streams:
            return b""
        return compound.read(streams[_TABLE + name], _LARGEST_TABLE, f"the table {name}")

    texts, wide = _read_pool(stream("_StringPool"), stream("_StringData"))
    text_size = 3 if wide else 2
    described = _read_table(stream("_Columns"), [text_size if text else size for _, text, size in _COLUMNS])
    columns = sorted((number, texts[name], kind) for table, number, name, kind in described if texts[table] == "File")
    sizes = [text_size if kind & _IS_TEXT else kind & _SIZE for _, _, kind in columns]
    at = [name for _, name, _ in columns]
    if not columns:
        return {}
    key, name = at.index("File"), at.index("FileName")
    # A name is short, or both: SHORT~1.EXE|long name.exe.
    rows = _read_table(stream("File"), sizes)
    return {texts[row[key]]: texts[row[name]].rpartition("|")[2] for row in rows}


def _read_pool(pool: bytes, data: bytes) -> tuple[list[str], bool]:
    """The texts of the database by their numbers, and whether a number has three bytes."""
    (head,) = struct.unpack_from("<I", pool)
    pairs = [*struct.iter_unpack("<HH", pool[4:])]
    texts, position, index = [""], 0, 0
    while index < len(pairs):
        length, uses = pairs[index]
        index += 1
        if not length and uses:
            # A long text: the upper half of its length stands here, and the rest in the next pair.
            more, _ = pairs[index]
            length, index = (uses << 16) | more, index + 1
        texts.append(data[position : position + length].decode("utf-8", "replace"))
        position += length
    return texts, bool(head & _WIDE_POOL)


def _read_table(data: bytes, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The rows of a table, whose bytes are one column after the other. A number has its highest bit inverted."""
    width = sum(sizes)
    count = len(data) // width if width else 0
    if not all(sizes) or count * width != len(data):
        raise MalformedData("a table has no whole number of rows")
    columns, start = [], 0
    for size in sizes:
        end = start + size * count
        columns.append([int.from_bytes(data[at : at + size], "little") for at in range(start, end, size)])
        start = end
    return [*zip(*columns, strict=True)]
