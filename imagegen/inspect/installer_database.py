"""Reads the tables of an MSI package: a compound file -> rows of texts and numbers, within bounds.

Windows Installer stores a table as a stream of the compound file, column by column. Its texts are numbers of a pool,
and the table _Columns describes all others.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.compound_file import STREAM
from imagegen.authenticode.errors import MalformedData

if TYPE_CHECKING:
    from imagegen.authenticode.compound_file import CompoundFile, Entry

# The largest packages have some thousand files, whose rows and names take less than a tenth of it.
_LARGEST: Final = 4 << 20
# Names of streams hold two characters of this alphabet in one of UTF-16, or one, or mark a table.
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
_PAIRS, _SINGLES, _TABLE_MARK = range(0x3800, 0x4800), range(0x4800, 0x4840), 0x4840
_TABLE: Final = "!"
_WIDE_POOL: Final = 0x8000_0000
_IS_TEXT, _SIZE = 0x0800, 0xFF
_COLUMNS: Final = (("Table", True, 2), ("Number", False, 2), ("Name", True, 2), ("Type", False, 2))


class NoDatabaseError(MalformedData):
    """The compound file is not one of Windows Installer."""


class Database:
    """The database of a package. Reading it raises MalformedData, struct.error or IndexError if it is damaged."""

    def __init__(self, compound: CompoundFile) -> None:
        self._compound = compound
        self.streams: Mapping[str, Entry] = {
            _decode(entry.name): entry for entry in compound.root.children if entry.kind == STREAM
        }
        """All streams by their names; those of tables begin with a mark."""
        if f"{_TABLE}_StringPool" not in self.streams:
            raise NoDatabaseError("it has no database of Windows Installer")
        pool = self._stream("_StringPool")
        self._text_size = 3 if struct.unpack_from("<I", pool)[0] & _WIDE_POOL else 2
        self._texts = [*_read_pool(pool, self._stream("_StringData"))]

    def texts(self, table: str, *columns: str) -> list[tuple[str, ...]]:
        """These columns, which hold texts, of each row. Empty if the package has no such table."""
        described = self._rows("_Columns", [self._text_size if text else size for _, text, size in _COLUMNS])
        known = sorted(
            (number, self._texts[name], kind) for of, number, name, kind in described if self._texts[of] == table
        )
        if not known:
            return []
        names = [name for _, name, _ in known]
        if missing := [name for name in columns if name not in names]:
            raise MalformedData(f"the table {table} has no column {missing[0]}")
        wanted = [names.index(name) for name in columns]
        rows = self._rows(table, [self._text_size if kind & _IS_TEXT else kind & _SIZE for _, _, kind in known])
        return [tuple(self._texts[row[at]] for at in wanted) for row in rows]

    def _stream(self, table: str) -> bytes:
        if _TABLE + table not in self.streams:
            return b""
        return self._compound.read(self.streams[_TABLE + table], _LARGEST, f"the table {table}")

    def _rows(self, table: str, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """The rows of a table, whose bytes are one column after the other. A number has its highest bit inverted."""
        data, width = self._stream(table), sum(sizes)
        count = len(data) // width if width else 0
        if not all(sizes) or count * width != len(data):
            raise MalformedData(f"the table {table} has no whole number of rows")
        columns, start = [], 0
        for size in sizes:
            end = start + size * count
            columns.append([int.from_bytes(data[at : at + size], "little") for at in range(start, end, size)])
            start = end
        return [*zip(*columns, strict=True)]


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


def _read_pool(pool: bytes, data: bytes) -> Iterator[str]:
    """The texts of the database, in the order of their numbers."""
    yield ""
    position = 0
    pairs = itertools.islice(struct.iter_unpack("<HH", pool), 1, None)
    for length, uses in pairs:
        size = length
        if not length and uses:
            # A long text: this is the upper half of its length, and the next pair has the rest.
            more, _ = next(pairs, (0, 0))
            size = (uses << 16) | more
        yield data[position : position + size].decode("utf-8", "replace")
        position += size
