"""Finds the signature of a PE file (exe, dll, sys, efi), and computes the digest that it signs.

Everything is digested but three parts: the checksum, the entry of the certificate table in the header, and the table.
See "Windows Authenticode Portable Executable Signature Format". Windows needs the table at the end of the file
(MS12-024), and so does this module. Of bytes in the table that belong to no signature, it accepts only zeros, as
Windows does with EnableCertPaddingCheck (MS13-098).
"""

import struct
from typing import IO, Final

from imagegen.authenticode.asn1 import first_value
from imagegen.authenticode.contents import PE_IMAGE
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import FileKind
from imagegen.authenticode.subject import Subject, file_size, hash_ranges, read_exactly
from imagegen.base.lines import counted

LARGEST_TABLE: Final = 16 * 1024 * 1024
_DOS_HEADER: Final = 64
_FILE_HEADER: Final = 24
_SECTION_HEADER: Final = 40
# By the magic number of the optional header: where the number of directories, and the table's entry, are in it.
_DIRECTORIES: Final = {0x10B: (92, 128), 0x20B: (108, 144)}
_CHECKSUM: Final = 64
_CERTIFICATE_TABLE: Final = 4
_ENTRY: Final = 8
_REVISIONS: Final = (0x0100, 0x0200)
_PKCS_SIGNED_DATA: Final = 2


class PortableExecutable(Subject):
    """A PE file. A header that is none is a MalformedData, and the file is no PE; a damaged table is another."""

    kind = FileKind.PE
    form = PE_IMAGE

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._size = file_size(file)
        header = read_exactly(file, 0, _DOS_HEADER, "the DOS header")
        (start,) = struct.unpack_from("<I", header, 60)
        file_header = read_exactly(file, start, _FILE_HEADER, "the PE header")
        if header[:2] != b"MZ" or file_header[:4] != b"PE\0\0":
            raise MalformedData("it is no PE file")
        sections, self._optional_size = struct.unpack_from("<H12xH", file_header, 6)
        self._optional = start + _FILE_HEADER
        optional = read_exactly(file, self._optional, self._optional_size, "the optional header")
        self._checksum = self._optional + _CHECKSUM
        self._entry = 0
        self._table, self._table_size = 0, 0
        self._sections = self._optional + self._optional_size, sections
        if len(optional) < _CHECKSUM + 4 or struct.unpack_from("<H", optional)[0] not in _DIRECTORIES:
            raise MalformedData("its optional header is of an unknown form")
        self._find_table(optional)

    def _find_table(self, optional: bytes) -> None:
        count_at, entry_at = _DIRECTORIES[struct.unpack_from("<H", optional)[0]]
        if len(optional) < entry_at + _ENTRY or struct.unpack_from("<I", optional, count_at)[0] <= _CERTIFICATE_TABLE:
            return
        self._entry = self._optional + entry_at
        self._table, self._table_size = struct.unpack_from("<II", optional, entry_at)

    def read_signature(self) -> None:
        """Read the certificate table. Windows judges its first entry, and nothing signs the bytes of any other."""
        if not self._table and not self._table_size:
            return
        self._check_table()
        table = read_exactly(self.file, self._table, self._table_size, "the certificate table")
        if len(table) < _ENTRY:
            raise MalformedData("the certificate table does not end with a signature")
        length, revision, kind = struct.unpack_from("<IHH", table)
        if not _ENTRY < length <= len(table):
            raise MalformedData(f"an entry of the certificate table has {length} bytes")
        if revision not in _REVISIONS or kind != _PKCS_SIGNED_DATA:
            raise MalformedData("an entry of the certificate table is not a signature")
        end = length + -length % _ENTRY
        if end > len(table):
            raise MalformedData("the certificate table is too short for its last entry")
        if end < len(table):
            rest = counted(len(table) - end, "byte")
            raise MalformedData(f"the first entry of the certificate table is followed by {rest}: only one is allowed")
        self.signature = _without_padding(table[_ENTRY:length])

    def _check_table(self) -> None:
        end = self._table + self._table_size
        if not self._table or not self._table_size or end > self._size:
            raise MalformedData("the header points to a certificate table that is not there")
        if end < self._size:
            raise MalformedData(f"the certificate table is followed by {counted(self._size - end, 'byte')}")
        if self._table_size > LARGEST_TABLE:
            raise MalformedData(
                f"the certificate table has {self._table_size} bytes, at most {LARGEST_TABLE} are allowed"
            )
        headers, count = self._sections
        if self._table < headers + count * _SECTION_HEADER:
            raise MalformedData("the certificate table overlaps with the headers")
        rows = read_exactly(self.file, headers, count * _SECTION_HEADER, "the section headers")
        for number in range(count):
            # What Windows loads, it must have hashed.
            length, start = struct.unpack_from("<II", rows, number * _SECTION_HEADER + 16)
            if length and start + length > self._table:
                raise MalformedData("a section overlaps with the certificate table")

    def digest(self, algorithm: str) -> bytes:
        """The Authenticode digest. A file without a signature is digested as it would be signed: padded to 8 bytes."""
        end = self._table or self._size
        padding = 0 if self._table else -self._size % _ENTRY
        if not self._entry:
            return hash_ranges(self.file, [(0, self._checksum), (self._checksum + 4, end)], algorithm, padding)
        parts = [(0, self._checksum), (self._checksum + 4, self._entry), (self._entry + _ENTRY, end)]
        return hash_ranges(self.file, parts, algorithm, padding)


def _without_padding(entry: bytes) -> bytes:
    length = first_value(entry)
    if any(entry[length:]):
        raise MalformedData(
            f"the signature is followed by {counted(len(entry) - length, 'byte')} in the certificate table"
        )
    return entry[:length]
