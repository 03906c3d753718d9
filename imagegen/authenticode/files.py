"""The forms of files that can have a signature: where it is, and what it signs. MSI has a module of its own.

Reads only the file that it is given, in bounded pieces.
"""

import base64
import binascii
import hashlib
import os
import re
import struct
from collections.abc import Iterable
from typing import IO, Final

from imagegen.authenticode.asn1 import first_value
from imagegen.authenticode.certificates import digest_label
from imagegen.authenticode.cms import (
    INDIRECT_DATA,
    LARGEST_SIGNATURE,
    PE_IMAGE,
    TRUST_LIST,
    ListedSubject,
    SignedDigest,
    read_indirect_data,
    read_listed_digest,
    read_signed_data,
    read_trust_list,
)
from imagegen.authenticode.model import FileKind, MalformedData, counted

_CHUNK: Final = 1024 * 1024


class Subject:
    """A file that can hold no signature of its own. The other forms of files are derived from it."""

    kind = FileKind.OTHER
    # What a signature must call this form of file.
    form = ""
    # The encoded signature. Empty: the file has none.
    signature = b""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read_signature(self) -> None:
        """Find the signature. That it is damaged is a MalformedData."""

    def check(self, content_type: str, content: bytes) -> tuple[str, str]:
        """Check what the signature signs: its digest algorithm, and what is wrong. Empty: it signs this file."""
        if content_type != INDIRECT_DATA:
            raise MalformedData("it is not an Authenticode signature")
        signed = read_indirect_data(content)
        return signed.algorithm, self.difference(signed)

    def digest(self, algorithm: str) -> bytes:
        """The digest that a signature of this form signs."""
        return hash_ranges(self.file, [(0, file_size(self.file))], algorithm)

    def listed_digests(self, algorithm: str) -> set[bytes]:
        """The digests under which a catalogue may list the file: that of its form, and that of all its bytes."""
        return {self.digest(algorithm), Subject.digest(self, algorithm)}

    def difference(self, signed: SignedDigest) -> str:
        """In what the file differs from the one that was signed. Empty: it is the same."""
        if signed.form != self.form:
            return f"the signature is not one for a {self.kind}"
        if self.digest(signed.algorithm) != signed.digest:
            return f"the file was changed after it was signed: its {digest_label(signed.algorithm)} digest differs"
        return ""


def file_size(file: IO[bytes]) -> int:
    """The size of an open file."""
    return file.seek(0, os.SEEK_END)


def read_exactly(file: IO[bytes], offset: int, length: int, what: str) -> bytes:
    """A part of a file. That the file is too short for it is a MalformedData."""
    file.seek(offset)
    data = file.read(length)
    if len(data) != length:
        raise MalformedData(f"the file is too short for {what}")
    return data


def read_whole(file: IO[bytes], limit: int, what: str) -> bytes:
    """A file of at most `limit` bytes."""
    file.seek(0)
    data = file.read(limit + 1)
    if len(data) > limit:
        raise MalformedData(f"{what} has more than {limit} bytes")
    return data


def hash_ranges(file: IO[bytes], ranges: Iterable[tuple[int, int]], algorithm: str, padding: int = 0) -> bytes:
    """The digest of parts of a file, each from an offset to another, and of zeros after them."""
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    for start, end in ranges:
        file.seek(start)
        for offset in range(start, end, _CHUNK):
            hasher.update(file.read(min(_CHUNK, end - offset)))
    hasher.update(bytes(padding))
    return hasher.digest()


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
    """A PE file (exe, dll, sys, efi). A header that is none is a MalformedData, and the file is no PE; a damaged table
    is another.

    Everything is digested but three parts: the checksum, the entry of the certificate table in the header, and the
    table. See "Windows Authenticode Portable Executable Signature Format". Windows needs the table at the end of the
    file (MS12-024), and so does this class. Of bytes in the table that belong to no signature, it accepts only zeros,
    as Windows does with EnableCertPaddingCheck (MS13-098).
    """

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


LARGEST_SCRIPT: Final = 16 * 1024 * 1024
_HASH_COMMENT: Final = ("# ", "")
_XML_COMMENT: Final = ("<!-- ", " -->")
# How a line of the block begins and ends, by the extension of the file.
COMMENTS: Final = {
    ".ps1": _HASH_COMMENT,
    ".psm1": _HASH_COMMENT,
    ".psd1": _HASH_COMMENT,
    ".ps1xml": _XML_COMMENT,
    ".psc1": _XML_COMMENT,
    ".cdxml": _XML_COMMENT,
}
_BEGIN: Final = "SIG # Begin signature block"
_END: Final = "SIG # End signature block"
_MARKS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\xef\xbb\xbf": "utf-8"}
_PROBE: Final = 32
# Windows accepts any one or two of these after the block.
_LINE_ENDS: Final = ("", "\r", "\n", "\r\n", "\n\r", "\r\r", "\n\n")
_ASCII: Final = 0x80
# Python leaves five bytes of this code page undecoded. Windows takes them for control characters.
_UNASSIGNED: Final = {0xDC00 + byte: byte for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
_NO_LETTER: Final = "\ufffd"
_LONGEST_LINE: Final = 64


class Script(Subject):
    """A PowerShell script: its signature is in comments at its end.

    The text before them is digested as UTF-16, with its byte order mark if it has one. Windows' own code for scripts
    (pwrshsip.dll) decodes a text with a mark by its mark. Without one it looks at the first 32 bytes: if there is a
    letter in UTF-8 among them, the text is UTF-8, otherwise it is in the code page of the machine, which is 1252 here.
    """

    kind = FileKind.SCRIPT
    form = "603bcc1f-4b59-4e08-b724-d2c6297ef351"

    def __init__(self, file: IO[bytes], extension: str) -> None:
        super().__init__(file)
        self._opening, self._closing = COMMENTS[extension]
        self._data = read_whole(file, LARGEST_SCRIPT, "the script")
        self._text = _decode(self._data)
        self._signed = self._text

    def read_signature(self) -> None:
        """Read the signature block, if there is one."""
        begin = self._line(_BEGIN)
        place = self._text.find(f"\r\n{begin}")
        if place < 0:
            if re.search(f"^{re.escape(begin.rstrip())}", self._text, re.MULTILINE):
                raise MalformedData("the signature block does not begin on a line of its own after a Windows line end")
            return
        self._signed = self._text[:place]
        lines, end, rest = self._text[place + 2 + len(begin) :].partition(f"\r\n{self._line(_END)}")
        if not end:
            raise MalformedData("the signature block has no end, or its line ends were changed")
        if rest not in _LINE_ENDS:
            surplus = counted(len(rest.removeprefix("\r\n")), "character")
            raise MalformedData(f"the signature block is followed by {surplus}")
        if _NO_LETTER in self._signed:
            # Different bytes would have the same digest.
            raise MalformedData("the text before the signature block has bytes that are no letters")
        self.signature = self._decode_block(lines)

    def _line(self, text: str) -> str:
        return f"{self._opening}{text}{self._closing}"

    def _decode_block(self, block: str) -> bytes:
        parts = []
        for line in block.split("\r\n")[1:]:
            if not line.startswith(self._opening) or not line.endswith(self._closing):
                raise MalformedData("a line of the signature block is not a comment")
            parts.append(line.removeprefix(self._opening).removesuffix(self._closing))
        if any(len(part) != _LONGEST_LINE for part in parts[:-1]):
            raise MalformedData(f"a line of the signature block does not have {_LONGEST_LINE} characters")
        try:
            data = base64.b64decode("".join(parts), validate=True)
        except (binascii.Error, ValueError):
            raise MalformedData("the signature block is not valid base64") from None
        # Unused bits of the last character could differ without changing the bytes.
        if base64.b64encode(data).decode() != "".join(parts):
            raise MalformedData("the signature block is not valid base64")
        return data

    def digest(self, algorithm: str) -> bytes:
        """The Authenticode digest."""
        return _digest(self._signed, algorithm)

    def difference(self, signed: SignedDigest) -> str:
        """In what the file differs from the one that was signed. Empty: it is the same."""
        difference = super().difference(signed)
        if difference and not self._data.startswith(tuple(_MARKS)):
            text = self._data.decode("utf-8", "replace")
            place = text.find(f"\r\n{self._line(_BEGIN)}")
            if _digest(text[:place], signed.algorithm) == signed.digest:
                return (
                    "it was signed as UTF-8, but Windows reads it in the machine's code page, because it has no byte "
                    "order mark: save it as UTF-8 with a byte order mark, and sign it again"
                )
        return difference


def _decode(data: bytes) -> str:
    """The text as Windows reads it. Bytes that are no letters become U+FFFD."""
    encoding = next((found for mark, found in _MARKS.items() if data.startswith(mark)), "")
    if encoding or _begins_as_utf8(data[:_PROBE]):
        return data.decode(encoding or "utf-8", "replace")
    return data.decode("cp1252", "surrogateescape").translate(_UNASSIGNED)


def _begins_as_utf8(data: bytes) -> bool:
    """Whether there is a letter of several bytes among these, and every one of them is complete."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return any(byte >= _ASCII for byte in data)


def _digest(text: str, algorithm: str) -> bytes:
    return hashlib.new(algorithm, text.encode("utf-16-le"), usedforsecurity=False).digest()


_BY_LENGTH: Final = {20: "sha1", 32: "sha256"}
_HEX: Final = re.compile("[0-9A-Fa-f]+")


class CatalogueFile(Subject):
    """A security catalogue (.cat): signed data whose content is a list of digests of other files."""

    kind = FileKind.CATALOGUE

    def read_signature(self) -> None:
        """Read the file, which must end with the signature."""
        data = read_whole(self.file, LARGEST_SIGNATURE, "the catalogue")
        length = first_value(data)
        if length < len(data):
            raise MalformedData(f"the signature is followed by {counted(len(data) - length, 'byte')}")
        self.signature = data

    def check(self, content_type: str, content: bytes) -> tuple[str, str]:
        """Check that a list is signed. There is no file beside it whose digest could differ."""
        if content_type != TRUST_LIST:
            raise MalformedData("it is not a catalogue")
        read_trust_list(content)
        return "", ""


def read_members(encoded: bytes) -> frozenset[tuple[str, bytes]]:
    """The digests of the files that a catalogue lists, with their algorithms."""
    data = read_signed_data(encoded)
    rows = read_trust_list(data.content).subjects if data.content_type == TRUST_LIST else ()
    return frozenset(member for row in rows for member in _members(row))


def _members(row: ListedSubject) -> list[tuple[str, bytes]]:
    digests = [read_listed_digest(encoded) for encoded in row.attributes.get(INDIRECT_DATA, ())]
    if digests:
        return [(found.algorithm, found.digest) for found in digests if found]
    # The row itself is named after the digest: its bytes, or its hexadecimal digits in UTF-16.
    name = row.identifier
    text = name.decode("utf-16-le", "replace").rstrip("\0")
    if len(name) not in _BY_LENGTH and _HEX.fullmatch(text) and len(text) % 2 == 0:
        name = bytes.fromhex(text)
    return [(_BY_LENGTH[len(name)], name)] if len(name) in _BY_LENGTH else []
