"""Encodes ASN.1 values in DER (ITU-T X.690): the few types that a signature is made of. Pure."""

from __future__ import annotations

NULL = b"\x05\x00"
_LONG_FORM = 0x80
_CONTEXT = 0x80
_CONSTRUCTED = 0x20


def encode(tag: int, content: bytes) -> bytes:
    """A value: tag, length and content."""
    length = len(content)
    if length < _LONG_FORM:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, _LONG_FORM | size]) + length.to_bytes(size, "big") + content


def sequence(*items: bytes) -> bytes:
    """A SEQUENCE."""
    return encode(0x30, b"".join(items))


def set_of(*items: bytes) -> bytes:
    """A SET OF: DER sorts its items by their encoding."""
    return encode(0x31, b"".join(sorted(items)))


def integer(value: int) -> bytes:
    """A non-negative INTEGER."""
    return encode(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def octets(value: bytes) -> bytes:
    """An OCTET STRING."""
    return encode(0x04, value)


def identifier(dotted: str) -> bytes:
    """An OBJECT IDENTIFIER."""
    first, second, *others = map(int, dotted.split("."))
    return encode(0x06, b"".join(map(_base128, (first * 40 + second, *others))))


def _base128(value: int) -> bytes:
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(0x80 | value & 0x7F)
    return bytes(reversed(digits))


def tagged(number: int, content: bytes, *, constructed: bool = True) -> bytes:
    """A value with a context-specific tag."""
    return encode(_CONTEXT | number | (_CONSTRUCTED if constructed else 0), content)
