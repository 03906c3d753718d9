"""Reads cabinets ([MS-CAB]), in which MSI packages have their files. Trusts neither names nor sizes."""

from __future__ import annotations

import dataclasses
import itertools
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from imagegen.inspect.archive import LIMIT_BYTES, LIMIT_MEMBERS

MAGIC: Final = b"MSCF"
_HEADER: Final = struct.Struct("<4s4xI4xI4xBBHHHHH")
_RESERVED: Final = struct.Struct("<HBB")
_FOLDER: Final = struct.Struct("<IHH")
_FILE: Final = struct.Struct("<IIHHHH")
_BLOCK: Final = struct.Struct("<IHH")
_SPANS: Final = 0x0003
_HAS_RESERVED: Final = 0x0004
_NAME_IS_UTF8: Final = 0x80
_LONGEST_NAME: Final = 256
_LARGEST_BLOCK: Final = 0x8000
_METHODS: Final = {0: "none", 1: "MSZIP", 2: "Quantum", 3: "LZX"}
_SUPPORTED: Final = ("none", "MSZIP")
_MSZIP: Final = b"CK"


class CabinetError(Exception):
    """The cabinet cannot be read. The message says why, and follows "it"."""


@dataclasses.dataclass(frozen=True)
class _Folder:
    """A run of blocks that are compressed together."""

    start: int
    blocks: int
    method: str


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a file is: from an offset of its unpacked folder, so many bytes."""

    name: str
    folder: int
    offset: int
    size: int


def open_cabinet(file: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Each file of a cabinet: its name, and its bytes in pieces. They can be read until the next is asked for."""
    with file.open("rb") as opened:
        folders, places, reserved = _read_directory(opened)
        for index, folder in enumerate(folders):
            if folder.method not in _SUPPORTED:
                raise CabinetError(f"is compressed with {folder.method}, which imagegen cannot unpack")
            of_folder = sorted((one for one in places if one.folder == index), key=lambda one: one.offset)
            unpacked = _Unpacked(_read_blocks(opened, folder, reserved))
            for place in of_folder:
                chunks = unpacked.part(place.offset, place.size)
                yield place.name, chunks
                # What the reader left is passed over.
                for _ in chunks:
                    pass


class _Unpacked:
    """The bytes of a folder, read once from its start to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._position = 0
        self._rest = b""

    def part(self, offset: int, size: int) -> Iterator[bytes]:
        """The bytes of one file."""
        if offset < self._position:
            raise CabinetError("has files that overlap")
        for _ in self._take(offset - self._position):
            pass
        yield from self._take(size)

    def _take(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._rest:
                self._rest = next(self._blocks, b"")
                if not self._rest:
                    raise CabinetError("is too short for its files")
            taken, self._rest = self._rest[:size], self._rest[size:]
            self._position += len(taken)
            size -= len(taken)
            yield taken


def _read_directory(file: IO[bytes]) -> tuple[list[_Folder], list[_Place], int]:
    """The folders, the files, and the size of the unused space in each block."""
    magic, _, files_start, _, major, folder_count, file_count, flags, *_ = _unpack(file, _HEADER)
    if magic != MAGIC or major != 1:
        raise CabinetError("is not a cabinet")
    if flags & _SPANS:
        raise CabinetError("goes on in another cabinet")
    header_space, folder_space, block_space = _unpack(file, _RESERVED) if flags & _HAS_RESERVED else (0, 0, 0)
    file.seek(header_space, 1)
    folders = []
    for _ in range(folder_count):
        start, blocks, method = _unpack(file, _FOLDER)
        file.seek(folder_space, 1)
        # The upper bits are the method's parameters.
        folders.append(_Folder(start, blocks, _METHODS.get(method & 0xF, "an unknown method")))
    file.seek(files_start)
    places = [_read_place(file) for _ in range(file_count)]
    if len(places) > LIMIT_MEMBERS or sum(place.size for place in places) > LIMIT_BYTES:
        raise CabinetError("has too many files, or too large ones")
    if any(place.folder >= len(folders) for place in places):
        raise CabinetError("has a file in another cabinet")
    return folders, places, block_space


def _read_place(file: IO[bytes]) -> _Place:
    size, offset, folder, _, _, attributes = _unpack(file, _FILE)
    name = bytearray()
    while byte := file.read(1):
        if byte == b"\0":
            encoding = "utf-8" if attributes & _NAME_IS_UTF8 else "cp1252"
            return _Place(name.decode(encoding, "replace"), folder, offset, size)
        name += byte
        if len(name) > _LONGEST_NAME:
            break
    raise CabinetError("has a file without a valid name")


def _read_blocks(file: IO[bytes], folder: _Folder, reserved: int) -> Iterator[bytes]:
    """The unpacked blocks of a folder. Each begins with what the one before it ended with, as its dictionary."""
    position, before = folder.start, b""
    for _ in itertools.repeat(None, folder.blocks):
        file.seek(position)
        _, packed, size = _unpack(file, _BLOCK)
        file.seek(reserved, 1)
        data = file.read(packed)
        position = file.tell()
        if len(data) != packed or size > _LARGEST_BLOCK:
            raise CabinetError("is damaged")
        before = _inflate(data, before) if folder.method == "MSZIP" else data
        if len(before) != size:
            raise CabinetError("is damaged")
        yield before


def _inflate(data: bytes, dictionary: bytes) -> bytes:
    if not data.startswith(_MSZIP):
        raise CabinetError("is damaged")
    try:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS, zdict=dictionary)
        return inflater.decompress(data[len(_MSZIP) :], _LARGEST_BLOCK + 1)
    except zlib.error as error:
        raise CabinetError(f"is damaged: {error}") from error


def _unpack(file: IO[bytes], form: struct.Struct) -> tuple[Any, ...]:
    data = file.read(form.size)
    if len(data) != form.size:
        raise CabinetError("is too short")
    return form.unpack(data)
