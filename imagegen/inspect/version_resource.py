"""Reads the version resource of a Windows program: VS_VERSIONINFO, as the file's properties show it in Explorer.

Reads a few kilobytes of the file, within bounds, and copies nothing. A damaged resource counts as none: it decides
nothing. https://learn.microsoft.com/windows/win32/debug/pe-format and .../win32/menurc/vs-versioninfo have the form.
"""

import itertools
import struct
from collections.abc import Iterator
from typing import IO, Final

SHOWN: Final = ("FileVersion", "ProductVersion", "CompanyName", "ProductName", "FileDescription", "OriginalFilename")

_LARGEST: Final = 1 << 16
_MOST_SECTIONS: Final = 96
_MOST_ENTRIES: Final = 4096
_LONGEST_TEXT: Final = 200
_VERSION_TYPE: Final = 16
_RESOURCES: Final = 2
# By the magic number of the optional header: where the number of directories is in it, and the first of them.
_DIRECTORIES: Final = {0x10B: (92, 96), 0x20B: (108, 112)}
_SUBDIRECTORY: Final = 1 << 31
_FIXED_SIGNATURE: Final = 0xFEEF04BD
_BLOCK: Final = struct.Struct("<HHH")


class _DamagedError(Exception):
    """The file is not a program with a version resource, or the resource is damaged."""


def read_version(file: IO[bytes]) -> dict[str, str]:
    """The texts of SHOWN that the program has. Empty for any other file."""
    try:
        return _texts(_find_resource(file))
    except (_DamagedError, struct.error):
        return {}


def _read(file: IO[bytes], offset: int, size: int) -> bytes:
    if not 0 < size <= _LARGEST:
        raise _DamagedError
    file.seek(offset)
    data = file.read(size)
    if len(data) < size:
        raise _DamagedError
    return data


def _find_resource(file: IO[bytes]) -> bytes:
    """The bytes of the version resource."""
    header = _read(file, 0, 64)
    (start,) = struct.unpack_from("<I", header, 60)
    signature, sections, optional_size = struct.unpack("<4s2xH12xH2x", _read(file, start, 24))
    if header[:2] != b"MZ" or signature != b"PE\0\0" or sections > _MOST_SECTIONS:
        raise _DamagedError
    optional = _read(file, start + 24, optional_size)
    count_at, first = _DIRECTORIES.get(struct.unpack_from("<H", optional)[0], (0, 0))
    if not first or struct.unpack_from("<I", optional, count_at)[0] <= _RESOURCES:
        raise _DamagedError
    address, _ = struct.unpack_from("<II", optional, first + 8 * _RESOURCES)
    rows = _read(file, start + 24 + optional_size, 40 * sections)
    # Of each section: its address in memory, its size in the file, and its offset there.
    places = [struct.unpack_from("<III", rows, 40 * number + 12) for number in range(sections)]
    root = _offset(places, address)
    # Type, name and language. The first name and the first language count.
    at = _entry(file, root, root, _VERSION_TYPE)
    at = _entry(file, root, _subdirectory(root, at))
    at = _entry(file, root, _subdirectory(root, at))
    if at & _SUBDIRECTORY:
        raise _DamagedError
    data, size = struct.unpack("<II8x", _read(file, root + at, 16))
    return _read(file, _offset(places, data), size)


def _offset(places: list[tuple[int, int, int]], address: int) -> int:
    """Where in the file an address in memory is."""
    for start, size, offset in places:
        if start <= address < start + size:
            return offset + address - start
    raise _DamagedError


def _subdirectory(root: int, at: int) -> int:
    if not at & _SUBDIRECTORY:
        raise _DamagedError
    return root + (at & ~_SUBDIRECTORY)


def _entry(file: IO[bytes], root: int, table: int, wanted: int | None = None) -> int:
    """To where the entry with this number points, or the first one."""
    named, numbered = struct.unpack("<12xHH", _read(file, table, 16))
    count = named + numbered
    if not 0 < count <= _MOST_ENTRIES or table < root:
        raise _DamagedError
    for number, target in struct.iter_unpack("<II", _read(file, table + 16, 8 * count)):
        if wanted in (None, number):
            return int(target)
    raise _DamagedError


def _texts(data: bytes) -> dict[str, str]:
    key, value, inside = _open_block(data, 0, len(data))
    if key != "VS_VERSION_INFO":
        raise _DamagedError
    found: dict[str, str] = {}
    if len(value) >= 24 and struct.unpack_from("<I", value)[0] == _FIXED_SIGNATURE:
        # The numbers by which Windows compares versions: two halves for each, the higher one first.
        for name, (high, low) in zip(SHOWN, struct.iter_unpack("<II", value[8:24]), strict=False):
            found[name] = f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"
    tables = (table for key, part in _blocks(data, inside) if key == "StringFileInfo" for table in _blocks(data, part))
    # The same texts in several languages: the first counts.
    for _, texts in itertools.islice(tables, 1):
        shown = {key: _text(data, *place) for key, place in _blocks(data, texts) if key in SHOWN}
        found |= {key: text for key, text in shown.items() if text}
    return found


def _text(data: bytes, first: int, end: int) -> str:
    text = data[first:end].decode("utf-16-le", "replace").partition("\0")[0].strip()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _blocks(data: bytes, place: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    """The blocks in a part of the resource: the key of each, and where its content is."""
    at, end = place
    while at + _BLOCK.size <= end:
        length = struct.unpack_from("<H", data, at)[0]
        if not _BLOCK.size <= length <= end - at:
            raise _DamagedError
        key, _, inside = _open_block(data, at, at + length)
        yield key, inside
        at = _aligned(at + length)


def _open_block(data: bytes, at: int, end: int) -> tuple[str, bytes, tuple[int, int]]:
    """The key of a block, its binary value, and where the rest is: the value if it is text, or other blocks."""
    length, value_size, is_text = _BLOCK.unpack_from(data, at)
    end = min(end, at + length)
    first = at + _BLOCK.size
    stop = next((spot for spot in range(first, end - 1, 2) if data[spot : spot + 2] == b"\0\0"), None)
    if stop is None:
        raise _DamagedError
    key, start = data[first:stop].decode("utf-16-le", "replace"), _aligned(stop + 2)
    value = b"" if is_text else data[start : min(end, start + value_size)]
    return key, value, (_aligned(start + len(value)), end)


def _aligned(at: int) -> int:
    return at + -at % 4
