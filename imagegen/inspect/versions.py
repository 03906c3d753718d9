"""Reads the version of a program, as Explorer shows it, and that of an MSI package. Reads the file, within bounds.

A damaged file counts as one without a version: a version decides nothing.
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Iterator
from typing import IO, Any, Final

import pefile

from imagegen.authenticode.model import MalformedData
from imagegen.authenticode.msi import STREAM, CompoundFile

SHOWN: Final = ("FileVersion", "ProductVersion", "CompanyName", "ProductName", "FileDescription", "OriginalFilename")
_LONGEST_TEXT: Final = 200
_FIXED_SIGNATURE: Final = 0xFEEF04BD
_LARGEST_RESOURCE: Final = 1 << 16
# What pefile may read of the resources of one program, and what each reading costs. Real programs take some kilobytes;
# tables that lead to the same place again and again would take hours.
_MOST_BYTES: Final = 4 << 20
_COST: Final = 64
_PE_ERRORS: Final = (
    *(pefile.PEFormatError, ValueError, TypeError, AttributeError, IndexError, KeyError, OverflowError, OSError),
    struct.error,
)

# The properties of a package, and what the version resource of a program calls them.
_PROPERTIES: Final = {"ProductVersion": "ProductVersion", "ProductName": "ProductName", "Manufacturer": "CompanyName"}
# The largest packages have some thousand files, whose rows and names take less than a tenth of it.
_LARGEST_TABLE: Final = 4 << 20
# Names of streams hold two characters of this alphabet in one of UTF-16, or one, behind a mark if it is a table.
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
_PAIR, _SINGLE, _TABLE_MARK = 0x3800, 0x4800, 0x4840
_WIDE_POOL: Final = 0x8000_0000


class _Program(pefile.PE):  # type: ignore[misc]  # pefile has no types
    """A program whose resources are read within bounds, and only the first of its version resources."""

    _left = _MOST_BYTES

    def _close_data(self) -> None:
        """Nothing is closed here. pefile would collect all garbage of the process, after each program."""

    def get_data(self, rva: int = 0, length: int | None = None) -> bytes:
        data: bytes = super().get_data(rva, length)
        self._left -= _COST + len(data)
        if self._left < 0:
            raise ValueError("the resources are too large")
        return data

    def parse_version_information(self, version_struct: Any) -> None:  # noqa: ANN401 - pefile has no types
        if not hasattr(self, "VS_VERSIONINFO") and version_struct.Size <= _LARGEST_RESOURCE:
            super().parse_version_information(version_struct)


def read_version(file: IO[bytes]) -> dict[str, str]:
    """The texts of SHOWN in the version resource of a program. Empty for any other file."""
    try:
        # Its buffer may hold the end of the file.
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            program = _Program(data=data, fast_load=True)
            program.parse_data_directories([pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_RESOURCE"]])
            return {**_numbers(program), **_texts(program)}
    except _PE_ERRORS:
        return {}


def _numbers(program: _Program) -> dict[str, str]:
    """The numbers by which Windows compares versions: two halves for each, the higher one first."""
    fixed = next(iter(getattr(program, "VS_FIXEDFILEINFO", ())), None)
    if fixed is None or fixed.Signature != _FIXED_SIGNATURE:
        return {}
    file, product = (fixed.FileVersionMS, fixed.FileVersionLS), (fixed.ProductVersionMS, fixed.ProductVersionLS)
    return {
        name: f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"
        for name, (high, low) in zip(SHOWN, (file, product), strict=False)
    }


def _texts(program: _Program) -> dict[str, str]:
    """The same texts may be there in several languages: the first counts."""
    blocks = itertools.chain.from_iterable(getattr(program, "FileInfo", ()))
    tables = (table for block in blocks for table in getattr(block, "StringTable", ()))
    entries: dict[bytes, bytes] = next((table.entries for table in tables), {})
    found = {name: entries.get(name.encode(), b"").decode("utf-8", "replace").strip() for name in SHOWN}
    return {name: _shortened(text) for name, text in found.items() if text}


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def read_properties(file: IO[bytes]) -> dict[str, str]:
    """Version, name and maker of an MSI package, as a version resource calls them. Empty for any other file."""
    try:
        found = dict(_properties(CompoundFile(file)))
    except (MalformedData, struct.error, IndexError, KeyError, ValueError):
        return {}
    return {shown: found[name][:_LONGEST_TEXT] for name, shown in _PROPERTIES.items() if found.get(name)}


def _properties(compound: CompoundFile) -> Iterator[tuple[str, str]]:
    """The rows of the table Property. A table is a stream, one column after the other, and its two columns hold the
    numbers of texts: https://learn.microsoft.com/windows/win32/msi/property-table"""
    streams = {entry.name: entry for entry in compound.root.children if entry.kind == STREAM}

    def table(name: str) -> bytes:
        return compound.read(streams[_stream_name(name)], _LARGEST_TABLE, f"the table {name}")

    pool = table("_StringPool")
    size = 3 if struct.unpack_from("<I", pool)[0] & _WIDE_POOL else 2
    texts = [*_read_pool(pool, table("_StringData"))]
    rows = table("Property")
    numbers = [int.from_bytes(rows[at : at + size], "little") for at in range(0, len(rows), size)]
    half = len(numbers) // 2
    for name, value in zip(numbers[:half], numbers[half:], strict=True):
        yield texts[name], texts[value]


def _stream_name(table: str) -> bytes:
    numbers = [_ALPHABET.index(letter) for letter in table]
    pairs = [_PAIR + first + (second << 6) for first, second in zip(numbers[::2], numbers[1::2], strict=False)]
    last = [_SINGLE + numbers[-1]] if len(numbers) % 2 else []
    return struct.pack(f"<{1 + len(pairs) + len(last)}H", _TABLE_MARK, *pairs, *last)


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
