"""Which bytes of a signed file no signature protects: a change there can leave the file valid, and the lock's sha256
refuses it. Everything else is signed, or decides whether the file can be read at all."""

from __future__ import annotations

import dataclasses
import io
import struct
from typing import TYPE_CHECKING

from imagegen.authenticode.files import Script
from imagegen.authenticode.msi import STREAM, CompoundFile, Entry
from tests.authenticode.signing import signature_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

_CERTIFICATES, _CRLS, _UNSIGNED = 0xA0, 0xA1, 0xA1
_INTEGER, _NULL = 0x02, 0x05


@dataclasses.dataclass(frozen=True)
class Value:
    """An encoded value: where it begins, where its content does, and where it ends."""

    tag: int
    start: int
    content: int
    end: int


def values(data: bytes, start: int, end: int) -> Iterator[Value]:
    """The encoded values in a part of the data. Only for data that is right."""
    while start < end:
        length, content = data[start + 1], start + 2
        if length & 0x80:
            content += length & 0x7F
            length = int.from_bytes(data[start + 2 : content])
        yield Value(data[start], start, content, content + length)
        start = content + length


def within(data: bytes, value: Value) -> list[Value]:
    return list(values(data, value.content, value.end))


def free_of_signature(data: bytes, used: Set[bytes]) -> set[int]:
    """The bytes of signed data that its signature does not protect. `used` are the certificates of the chain."""
    (outer,) = values(data, 0, len(data))
    _, explicit = within(data, outer)
    (signed,) = within(data, explicit)
    version, digests, _, *rest = within(data, signed)
    free = _whole(version) | _parameters(data, digests)
    for value in rest[:-1]:
        if value.tag == _CRLS:
            free |= _whole(value)
        for certificate in within(data, value) if value.tag == _CERTIFICATES else ():
            if data[certificate.start : certificate.end] not in used:
                free |= _whole(certificate)
    (signer,) = within(data, rest[-1])
    version, _, digest, _, algorithm, *others = within(data, signer)
    free |= _whole(version) | _parameters(data, digest) | _parameters(data, algorithm)
    for value in others:
        free |= _whole(value) if value.tag == _UNSIGNED else set()
    return free


def _whole(value: Value) -> set[int]:
    return set(range(value.content, value.end))


def _parameters(data: bytes, value: Value) -> set[int]:
    """Parameters that say nothing: NULL, which may also be left out."""
    found: set[int] = set()
    for inner in within(data, value):
        if inner.tag == _NULL:
            found |= {inner.start, inner.start + 1}
        elif inner.tag & 0x20:
            found |= _parameters(data, inner)
    return found


def free_of_program(data: bytes, used: Set[bytes]) -> set[int]:
    """PE: the checksum, the revision and the padding of the certificate table, and what is free in the signature."""
    optional = struct.unpack_from("<I", data, 60)[0] + 24
    start, size = table(data)
    signature = signature_of(data)
    free = {start + 8 + offset for offset in free_of_signature(signature, used)}
    padding = range(start + 8 + len(signature), start + size)
    return free | set(range(optional + 64, optional + 68)) | {start + 4, start + 5} | set(padding)


def free_of_package(data: bytes, used: Set[bytes]) -> set[int]:
    """MSI: everything but the contents of the streams, and what is free in the signature. With the extended signature,
    the names, sizes and times in the directory are signed too."""
    storage = CompoundFile(io.BytesIO(data))
    free = set(range(len(data)))
    is_extended = any("Ex" in _text(entry) and "Signature" in _text(entry) for entry in storage.root.children)
    for entry in _streams(storage.root):
        places = [place for start, end in storage.ranges(entry) for place in range(start, end)]
        free -= set(places)
        if _text(entry) == "\5DigitalSignature":
            signature = bytes(data[place] for place in places)
            free |= {places[offset] for offset in free_of_signature(signature, used)}
        elif is_extended and _text(entry) != "\5MsiDigitalSignatureEx":
            at = data.index(entry.name + b"\0\0")
            free -= {*range(at, at + len(entry.name)), *range(at + 96, at + 116), *range(at + 120, at + 124)}
    return free


def _streams(storage: Entry) -> Iterator[Entry]:
    for entry in storage.children:
        if entry.kind == STREAM:
            yield entry
        else:
            yield from _streams(entry)


def _text(entry: Entry) -> str:
    return entry.name.decode("utf-16-le")


def free_of_script(data: bytes, used: Set[bytes]) -> set[int]:
    """PS1: the bytes of the block's base64 that hold only what is free in the signature, and the last line end."""
    script = Script(io.BytesIO(data), ".ps1")
    script.read_signature()
    free = free_of_signature(script.signature, used)
    begin = data.index(b"# SIG # Begin signature block\r\n") + len(b"# SIG # Begin signature block\r\n")
    end = data.index(b"\r\n# SIG # End")
    letters = [
        place
        for place in range(begin, end)
        if data[place] not in b"\r\n" and (place - begin) % len(b"# \r\n" + bytes(64)) >= len(b"# ")
    ]
    found = set(range(len(data) - 2, len(data)))
    for number, place in enumerate(letters):
        # A character holds six bits, of one byte or of two.
        held = {number * 6 // 8, min((number * 6 + 5) // 8, len(script.signature) - 1)}
        if held <= free:
            found.add(place)
    return found
