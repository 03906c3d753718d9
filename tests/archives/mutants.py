"""Changes archives at random, from a seed: in their bytes, or in what their headers and lists say."""

from __future__ import annotations

import contextlib
import gzip
import struct
import zlib
from typing import TYPE_CHECKING, Final

from tests.archives.tars import BLOCK, END, file, header, long_name, record, with_checksum

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_NAMES: Final = (
    b"version.dll", b"./version.dll", b"bin", b"bin/", b"bin/ctr.exe", b"BIN/CTR.EXE", b"x/", b"./", b".", b"",
    b"../a.dll", b"/a.dll", b"a\\b.dll", b"././b.dll", b"con", b"a//b.dll", b"bin/ctr.exe/a", b"c:b", b"\xc3\xa4.exe",
    b"\x84", b"a" * 100, b"bin/./ctr.exe", b"BZh91AY&SY", b"a\0b", b"a.", b"._ctr.exe", b"a" * 99 + b"/",
)  # fmt: skip
_FLAGS: Final = b"0\0001234567xgLKSVMNDAXZ5050000"
_ATTRIBUTES: Final = (
    ("path", "version.dll"), ("path", "bin/new.exe"), ("path", "a/"), ("path", ""), ("path", "\u00e4.exe"),
    ("path", "a\u0308"), ("path", "./bin/a.dll"), ("size", "0"), ("size", "1"), ("size", "512"), ("mtime", "1.5"),
    ("mtime", "x"), ("comment", "a"), ("linkpath", "a"), ("GNU.sparse.name", "b"), ("GNU.sparse.realsize", "2"),
    ("GNU.sparse.major", "1"), ("SCHILY.realsize", "3"), ("SCHILY.fflags", "hidden"), ("SCHILY.xattr.user.a", "b"),
    ("hdrcharset", "BINARY"), ("uname", "\u00e4"), ("uid", "7"),
)  # fmt: skip
# Names, numbers, forms and prefixes in the header of a tar, and what is behind the times of GNU.
_FIELDS: Final = (
    (0, 100),
    (100, 108),
    (108, 116),
    (124, 136),
    (136, 148),
    (148, 156),
    (157, 257),
    (257, 265),
    (345, 500),
    (369, 512),
)
_EXTRAS: Final = (0x0001, 0x000A, 0x000D, 0x5455, 0x5855, 0x6C78, 0x7075, 0x7855, 0x7875, 0x9901, 0xCAFE, 0x1234)
# Where the fields of a zip's two headers are, and how long each is.
_LOCAL: Final = ((4, 2), (6, 2), (8, 2), (10, 4), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))
_LISTED: Final = (
    (4, 2),
    (6, 2),
    (8, 2),
    (10, 2),
    (16, 4),
    (20, 4),
    (24, 4),
    (28, 2),
    (30, 2),
    (32, 2),
    (34, 2),
    (38, 4),
    (42, 4),
)
_END: Final = ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))
_NUMBERS: Final = (0, 1, 2, 8, 9, 14, 0x10, 0x800, 0xFFFF, 0xFFFFFFFF)


def mutate(data: bytes, choose: random.Random) -> bytes:
    """The archive with one to three changes."""
    if data.startswith(b"\x1f\x8b"):
        if choose.random() < 0.2:
            return _change_bytes(data, choose)
        with contextlib.suppress(zlib.error, OSError, EOFError):
            return gzip.compress(mutate(gzip.decompress(data), choose), 1, mtime=0) + choose.choice(
                (b"", b"", b"\0\0", b"1")
            )
    changes: tuple[Callable[[bytes, random.Random], bytes], ...] = (_change_tar, _change_tar, _change_bytes)
    if data.startswith(b"PK"):
        changes = (_change_zip, _change_zip, _change_bytes)
    for _ in range(choose.randint(1, 3)):
        # Of what an earlier change cut off, some changes find nothing.
        with contextlib.suppress(struct.error, ValueError):
            data = choose.choice(changes)(data, choose)
    return data


def change_times_and_owners(data: bytes, choose: random.Random) -> bytes:
    """The archive with other times and owners: a tar's headers, or a zip's dates."""
    if data.startswith(b"\x1f\x8b"):
        return gzip.compress(change_times_and_owners(gzip.decompress(data), choose), 1, mtime=0)
    if data.startswith(b"PK"):
        return _change_dates(data, choose)
    out = bytearray()
    for block, content in _members(data):
        changed = bytearray(block)
        if block[156:157] not in (b"x", b"g", b"L", b"K"):
            changed[108:116] = b"%07o\0" % choose.randrange(1 << 21)
            changed[116:124] = b"%07o\0" % choose.randrange(1 << 21)
            changed[136:148] = b"%011o\0" % choose.randrange(1 << 31)
            changed[265:297] = choose.choice((b"root", b"", b"runner", b"user " + b"x" * 20)).ljust(32, b"\0")
            changed[297:329] = choose.choice((b"wheel", b"", b"docker")).ljust(32, b"\0")
        out += with_checksum(changed) + content
    return bytes(out) + END


def _change_bytes(data: bytes, choose: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(choose.randint(1, 3)):
        changed[choose.randrange(2, len(data))] = choose.choice((0, 0x2F, 0x35, 0xFF, choose.randrange(256)))
    return bytes(changed)


def _members(data: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a tar, each with the content that its size says."""
    found, at = [], 0
    while at + BLOCK <= len(data) and data[at : at + BLOCK].strip(b"\0"):
        block = data[at : at + BLOCK]
        digits = block[124:135].strip(b" \0")
        size = int(digits, 8) if digits.isdigit() and not set(digits) & {*b"89"} else 0
        end = at + BLOCK + size + -size % BLOCK
        found.append((block, data[at + BLOCK : end]))
        at = end
    return found


def _change_tar(data: bytes, choose: random.Random) -> bytes:
    members = _members(data)
    if not members:
        return _change_bytes(data, choose)
    at = choose.randrange(len(members))
    block, content = members[at]
    kind = choose.randrange(11)
    if kind == 0:
        members.insert(choose.randrange(len(members) + 1), members[at])
    elif kind == 1:
        del members[at]
    elif kind == 2:
        members[at] = with_checksum(block[:156] + bytes([choose.choice(_FLAGS)]) + block[157:]), content
    elif kind in (3, 4):
        members[at] = with_checksum(choose.choice(_NAMES)[:100].ljust(100, b"\0") + block[100:]), content
    elif kind == 5:
        size = choose.choice((0, 1, 511, 512, 513, len(content), len(content) + 512, 1 << 30))
        members[at] = with_checksum(block[:124] + b"%011o\0" % size + block[136:]), content
    elif kind in (6, 7):
        members.insert(at, (_extra_header(choose), b""))
    elif kind == 8:
        start, end = choose.choice(_FIELDS)
        value = choose.choice((bytes(end - start), b"0" * (end - start), choose.randbytes(end - start), b"x"))
        changed = block[:start] + value + block[start + len(value) :]
        members[at] = (with_checksum(changed) if choose.random() < 0.8 else changed), content
    elif kind == 9:
        members.insert(at, (choose.choice((bytes(BLOCK), b"junk".ljust(BLOCK, b" "), header(b"bin", flag=b"5"))), b""))
    else:
        return b"".join(map(b"".join, members)) + choose.choice(
            (b"", bytes(512), END + b"1", END + data, bytes(20_000))
        )
    return b"".join(map(b"".join, members)) + END


def _extra_header(choose: random.Random) -> bytes:
    if choose.random() < 0.3:
        return long_name(choose.choice(_NAMES))
    key, value = choose.choice(_ATTRIBUTES)
    return file(b"PaxHeaders/x", record(key, value), choose.choice((b"x", b"x", b"x", b"g", b"X")))


def _places(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


def _change_zip(data: bytes, choose: random.Random) -> bytes:
    """Another value in one header, another name in one or both, bytes between records, or fewer of them."""
    kind = choose.randrange(7)
    mark, fields = choose.choice(((b"PK\3\4", _LOCAL), (b"PK\1\2", _LISTED), (b"PK\5\6", _END)))
    places = _places(data, mark)
    if not places:
        return _change_bytes(data, choose)
    at = choose.choice(places)
    if kind in (0, 1):
        start, size = choose.choice(fields)
        value = choose.choice((*_NUMBERS, int.from_bytes(data[at + start : at + start + size], "little") ^ 1)) % (
            1 << 8 * size
        )
        return data[: at + start] + value.to_bytes(size, "little") + data[at + start + size :]
    if kind == 2:
        # Everywhere, or in one of its headers.
        old, new = choose.choice(
            ((b".exe", b".dll"), (b"bin/", b"BIN/"), (b"bin/", b"./b/"), (b"bin/", b"../b"), (b"a.exe", b"a.ex/"))
        )
        return data.replace(old, new, choose.choice((-1, 1)))
    if kind == 3:
        return _add_extra(data, choose)
    if kind == 4:
        junk = choose.choice((b"\0", b"PK\3\4", b"PK\5\6" + bytes(18), b"x" * 17_000, data))
        return data[:at] + junk + data[at:]
    if kind == 5:
        comment = choose.choice((b"c", b"PK\5\6", b"PK\5\6" + bytes(18), data, b" " * 17_000))
        return data[:-2] + struct.pack("<H", len(comment) % 65536) + comment
    return data[: at + choose.randrange(60)] + data[at + choose.randrange(60) :]


def _add_extra(data: bytes, choose: random.Random) -> bytes:
    """An extra field in the first member's two headers, with the places that follow."""
    field = struct.pack("<2H", choose.choice(_EXTRAS), 8) + choose.choice(
        (bytes(8), b"\1" * 8, b"\4\0\0\xff\xa1\0\0\0")
    )
    listed, end = data.find(b"PK\1\2"), data.rfind(b"PK\5\6")
    if listed < 0 or end < listed:
        return data
    changed = bytearray(data)
    size, start = struct.unpack_from("<2L", data, end + 12)
    struct.pack_into("<2L", changed, end + 12, (size + len(field)) % 2**32, (start + len(field)) % 2**32)
    at = listed
    while changed[at : at + 4] == b"PK\1\2" and at + 46 <= len(changed):
        place = struct.unpack_from("<L", changed, at + 42)[0]
        struct.pack_into("<L", changed, at + 42, (place + len(field) if place else 0) % 2**32)
        at += 46 + sum(struct.unpack_from("<3H", changed, at + 28))
    for header_at, fixed, length in ((listed, 46, 30), (0, 30, 28)):
        name, extra = struct.unpack_from("<2H", changed, header_at + length - 2)
        struct.pack_into("<H", changed, header_at + length, (extra + len(field)) % 65536)
        where = header_at + fixed + name + extra
        changed[where:where] = field
    return bytes(changed)


def _change_dates(data: bytes, choose: random.Random) -> bytes:
    changed = bytearray(data)
    for mark, start in ((b"PK\3\4", 10), (b"PK\1\2", 12)):
        for at in _places(data, mark):
            date = choose.randint(0, 100) << 9 | choose.randint(1, 12) << 5 | choose.randint(1, 28)
            struct.pack_into("<2H", changed, at + start, choose.randint(0, 23) << 11, date)
    return bytes(changed)
