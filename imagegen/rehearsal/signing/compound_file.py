"""Compound files ([MS-CFB]), the form of MSI packages: with streams in one storage, and their signature. Pure."""

from __future__ import annotations

import hashlib
import struct
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.signing.signature import MSI, make_signature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.signing.authority import CodeSigner

MAGIC = bytes.fromhex("d0cf11e0a1b11ae1")
SIGNATURE = "\x05DigitalSignature"
_CLASS_ID = uuid.UUID("000c1084-0000-0000-c000-000000000046").bytes_le
_SECTOR, _MINI, _CUTOFF = 512, 64, 4096
_FAT_MARK, _END, _NONE = 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF
_PER_SECTOR = _SECTOR // 4
# The header names so many sectors of the table. More would need a list of their own, and no stand-in is that large.
_IN_HEADER = 109
_STREAM, _ROOT = 2, 5
_ENTRY = struct.Struct("<64sHBBIII16sI16xIQ")
_HEADER = struct.Struct("<8s16xHHHHH10xIIIIIIII")


class NotCompoundError(ValueError):
    """These bytes are no compound file that this module made."""


def make_compound_file(streams: Mapping[str, bytes]) -> bytes:
    """A compound file with these streams. Equal streams give equal bytes."""
    sectors: list[bytes] = []
    fat: list[int] = []
    names = sorted(streams, key=lambda name: (len(name), name.upper()))
    short = {name: streams[name] for name in names if len(streams[name]) < _CUTOFF}
    mini = b"".join(data.ljust(_ceil(len(data), _MINI) * _MINI, b"\0") for data in short.values())
    starts = {name: _add(sectors, fat, streams[name]) for name in names if name not in short}
    mini_fat: list[int] = []
    for name, data in short.items():
        starts[name] = len(mini_fat) if data else _END
        mini_fat += _chain(len(mini_fat), _ceil(len(data), _MINI))
    root = (_add(sectors, fat, mini), len(mini))
    mini_fat_start = _add(sectors, fat, _table(mini_fat))
    directory = _add(sectors, fat, _directory(names, streams, starts, root))
    tables = 1
    while (len(fat) + tables) > tables * _PER_SECTOR:
        tables += 1
    if tables > _IN_HEADER:
        raise ValueError("the stand-in is too large for a simple compound file")
    places = range(len(fat), len(fat) + tables)
    fat += [_FAT_MARK] * tables
    head = _HEADER.pack(
        *(MAGIC, 0x3E, 3, 0xFFFE, 9, 6, tables, directory, 0, _CUTOFF),
        *(mini_fat_start, _ceil(len(mini_fat), _PER_SECTOR), _END, 0),
    )
    listed = struct.pack(f"<{_IN_HEADER}I", *places, *[_NONE] * (_IN_HEADER - tables))
    return head + listed + b"".join(sectors) + _table(fat)


def read_compound_file(data: bytes) -> dict[str, bytes]:
    """The streams of a file that `make_compound_file` made."""
    try:
        magic, *_, tables, directory, _, _, mini_fat_start, mini_tables, _, _ = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise NotCompoundError("does not begin as a compound file")
        fat = _read_table(data, struct.unpack_from(f"<{tables}I", data, _HEADER.size))
        root, *entries = _ENTRY.iter_unpack(_follow(data, fat, directory))
        mini_fat = _read_table(data, range(mini_fat_start, mini_fat_start + mini_tables)) if mini_tables else []
        mini = _follow(data, fat, root[-2])
        streams = {}
        for name, length, kind, *_, start, size in entries:
            if kind == _STREAM:
                content = _follow(data, fat, start) if size >= _CUTOFF else _follow_mini(mini, mini_fat, start)
                streams[name[: length - 2].decode("utf-16-le")] = content[:size]
        return streams
    except (struct.error, ValueError, IndexError) as error:
        raise NotCompoundError(f"is a damaged compound file: {error}") from error


def sign_compound_file(data: bytes, signer: CodeSigner) -> bytes:
    """The file with a stream that has the signature of all others."""
    streams = {name: content for name, content in read_compound_file(data).items() if name != SIGNATURE}
    ordered = sorted(streams, key=lambda name: name.encode("utf-16-le"))
    digest = hashlib.sha256(b"".join([*(streams[name] for name in ordered), _CLASS_ID])).digest()
    return make_compound_file({**streams, SIGNATURE: make_signature(MSI, digest, signer)})


def _directory(
    names: list[str], streams: Mapping[str, bytes], starts: Mapping[str, int], root: tuple[int, int]
) -> bytes:
    """The root and its streams, each of which follows the one before it."""
    entries = [_entry("Root Entry", _ROOT, _NONE, 1 if names else _NONE, *root)]
    for index, name in enumerate(names, 1):
        following = index + 1 if index < len(names) else _NONE
        entries.append(_entry(name, _STREAM, following, _NONE, starts[name], len(streams[name])))
    empty = _ENTRY.pack(b"", 0, 0, 0, _NONE, _NONE, _NONE, bytes(16), 0, 0, 0)
    return b"".join(entries) + empty * (-len(entries) % (_SECTOR // _ENTRY.size))


def _entry(name: str, kind: int, following: int, child: int, start: int, size: int) -> bytes:
    encoded = name.encode("utf-16-le")
    class_id = _CLASS_ID if kind == _ROOT else bytes(16)
    return _ENTRY.pack(encoded, len(encoded) + 2, kind, 1, _NONE, following, child, class_id, 0, start, size)


def _add(sectors: list[bytes], fat: list[int], data: bytes) -> int:
    """Add the data as a chain of sectors. Returns the first, or the end of a chain if there is none."""
    if not data:
        return _END
    start, count = len(fat), _ceil(len(data), _SECTOR)
    sectors.append(data.ljust(count * _SECTOR, b"\0"))
    fat += _chain(start, count)
    return start


def _chain(start: int, count: int) -> list[int]:
    return [*range(start + 1, start + count), _END] if count else []


def _table(values: list[int]) -> bytes:
    padded = [*values, *[_NONE] * (-len(values) % _PER_SECTOR)]
    return struct.pack(f"<{len(padded)}I", *padded)


def _read_table(data: bytes, sectors: range | tuple[int, ...]) -> list[int]:
    raw = b"".join(data[(sector + 1) * _SECTOR : (sector + 2) * _SECTOR] for sector in sectors)
    return [*struct.unpack(f"<{len(raw) // 4}I", raw)]


def _follow(data: bytes, fat: list[int], sector: int) -> bytes:
    parts: list[bytes] = []
    while sector < _FAT_MARK and len(parts) <= len(fat):
        parts.append(data[(sector + 1) * _SECTOR : (sector + 2) * _SECTOR])
        sector = fat[sector]
    return b"".join(parts)


def _follow_mini(mini: bytes, fat: list[int], sector: int) -> bytes:
    parts: list[bytes] = []
    while sector < _FAT_MARK and len(parts) <= len(fat):
        parts.append(mini[sector * _MINI : (sector + 1) * _MINI])
        sector = fat[sector]
    return b"".join(parts)


def _ceil(size: int, unit: int) -> int:
    return -(-size // unit)
