"""Reads the bytes of a file, packed with gzip or not, for a reader that needs exact numbers of them.

Behind the last member of a gzip file, libarchive stops at zeros, and ignores what is not gzip. Here only zeros may
follow.
"""

from __future__ import annotations

import zlib
from typing import IO, Final

_CHUNK: Final = 1 << 18
# A window of 32 KiB, with gzip's header and checksum around the data.
_GZIP: Final = 31
DAMAGED: Final = "it is cut off or damaged: download it again"
PACK_AGAIN: Final = "pack its files again, with `tar.exe -a -c -f FILE.zip FOLDER` or any ordinary zip or tar"


class UnreadableArchiveError(Exception):
    """An archive that tar.exe of Windows may read in another way than imagegen, or not at all."""

    def __init__(self, message: str, hint: str = DAMAGED) -> None:
        super().__init__(message)
        self.hint = hint


class PlainBytes:
    """The bytes of a file as they are."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """This many bytes, or fewer at the end."""
        return self._file.read(size)

    def skip(self, size: int) -> None:
        """Go forward. Behind the end, nothing can be read."""
        self._file.seek(size, 1)


class GzipBytes:
    """What the members of a gzip file unpack to, one after the other."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._inflater = zlib.decompressobj(_GZIP)
        self._packed = b""
        self._unpacked = memoryview(b"")

    def read(self, size: int) -> bytes:
        """This many bytes, or fewer at the end."""
        parts = []
        while size > 0 and (part := self._take(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Go forward. Behind the end, nothing can be read."""
        while size > 0 and (part := self._take(size)):
            size -= len(part)

    def _take(self, size: int) -> memoryview:
        if not self._unpacked:
            self._unpacked = memoryview(self._inflate())
        part, self._unpacked = self._unpacked[:size], self._unpacked[size:]
        return part

    def _inflate(self) -> bytes:
        """The next bytes; none at the end."""
        while True:
            packed = self._packed or self._file.read(_CHUNK)
            if self._inflater.eof:
                if not packed or packed[0] == 0:
                    return self._end(packed)
                self._inflater = zlib.decompressobj(_GZIP)
            elif not packed:
                raise UnreadableArchiveError("its compressed data ends too early")
            part = self._inflater.decompress(packed, _CHUNK)
            self._packed = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            if part:
                return part

    def _end(self, rest: bytes) -> bytes:
        while rest:
            if rest.strip(b"\0"):
                raise UnreadableArchiveError("it has other data after its compressed data", PACK_AGAIN)
            rest = self._file.read(_CHUNK)
        self._packed = b""
        return b""
