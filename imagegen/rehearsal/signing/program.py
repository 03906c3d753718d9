"""A small Windows program that holds a text, and its signature. Pure."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

from imagegen.rehearsal.signing.signature import PE, make_signature

if TYPE_CHECKING:
    from imagegen.rehearsal.signing.authority import CodeSigner

_HEADER_AT = 0x40
_OPTIONAL_AT = _HEADER_AT + 24
_CHECKSUM_AT = _OPTIONAL_AT + 64
_DIRECTORIES = 16
_SECURITY_AT = _OPTIONAL_AT + 112 + 4 * 8
_ALIGNMENT = 0x200
_PAGE = 0x1000
# In a signature's entry: revision 2, PKCS #7.
_ENTRY = struct.Struct("<IHH")
_REVISION, _PKCS7 = 0x0200, 0x0002


def make_program(text: bytes, *, is_library: bool = False) -> bytes:
    """A program for 64-bit Windows whose only section holds the text."""
    raw = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT, b"\0")
    pages = -(-len(raw) // _PAGE) * _PAGE
    dos = struct.pack("<2s58xI", b"MZ", _HEADER_AT)
    # x64, one section, the size of the optional header, and the flags: executable, with large addresses, a library.
    flags = 0x2022 if is_library else 0x0022
    file_header = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, 112 + 8 * _DIRECTORIES, flags)
    optional = struct.pack(
        "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII",
        *(0x20B, 14, 0, 0, len(raw), 0, 0, _PAGE, 0x140000000, _PAGE, _ALIGNMENT),
        # Windows 10; size of the image and of its headers; no checksum yet; a console program that may be relocated.
        *(10, 0, 0, 0, 10, 0, 0, _PAGE + pages, _ALIGNMENT, 0, 3, 0x160),
        *(0x100000, 0x1000, 0x100000, 0x1000, 0, _DIRECTORIES),
    )
    section = struct.pack("<8sIIIIIIHHI", b".rdata", len(raw), _PAGE, len(raw), _ALIGNMENT, 0, 0, 0, 0, 0x40000040)
    headers = dos + file_header + optional + bytes(8 * _DIRECTORIES) + section
    return _with_checksum(headers.ljust(_ALIGNMENT, b"\0") + raw)


def sign_program(data: bytes, signer: CodeSigner) -> bytes:
    """The program with a signature after its end."""
    signature = make_signature(PE, _digest(data), signer)
    entry = signature.ljust(-(-len(signature) // 8) * 8, b"\0")
    entry = _ENTRY.pack(_ENTRY.size + len(entry), _REVISION, _PKCS7) + entry
    place = struct.pack("<II", len(data), len(entry))
    return _with_checksum(data[:_SECURITY_AT] + place + data[_SECURITY_AT + len(place) :] + entry)


def _digest(data: bytes) -> bytes:
    """The digest of all but the checksum and the place of the signature, which change when it is added."""
    parts = data[:_CHECKSUM_AT], data[_CHECKSUM_AT + 4 : _SECURITY_AT], data[_SECURITY_AT + 8 :]
    return hashlib.sha256(b"".join(parts)).digest()


def _with_checksum(data: bytes) -> bytes:
    """The file with its checksum: the sum of its 16-bit words, with carries added, and its length."""
    plain = data[:_CHECKSUM_AT] + bytes(4) + data[_CHECKSUM_AT + 4 :]
    words = struct.unpack(f"<{len(plain) // 2}H", plain)
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:_CHECKSUM_AT] + struct.pack("<I", total + len(data)) + data[_CHECKSUM_AT + 4 :]
