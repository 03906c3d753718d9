"""Reads a zip as libarchive does, which is tar.exe of Windows: only what all its versions read in the same way.

A zip lists its files twice: at its end, where libarchive looks first, and before the content of each. Both must say
the same, and nothing may lie between. libarchive's own reader is libarchive/archive_read_support_format_zip.c; versions
3.3.2 to 3.8.9 were read. The format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT.
"""

from __future__ import annotations

import dataclasses
import stat
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Final, Literal

from imagegen.inspect.tar_reader import BLOCK, decode_name, is_header
from imagegen.inspect.unpacked import PACK_AGAIN, UnreadableArchiveError

STORED: Final = 0
DEFLATED: Final = 8
# What tar.exe of every release unpacks: imagegen/catalog/archives.json.
METHODS: Final = (STORED, DEFLATED)
METHOD_NAMES: Final = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "XZ", 98: "PPMd"}
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_LISTED: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_EXTRA: Final = struct.Struct("<2H")
_NONE_32: Final = 0xFFFFFFFF
_NONE_16: Final = 0xFFFF
# libarchive looks for the end in as many bytes, but not at the first of them.
_TAIL: Final = 16384
_LARGEST_LIST: Final = 16 << 20
_CHUNK: Final = 1 << 20
# Of a flag: how hard it was compressed, that sizes follow the content, and that the name is in UTF-8.
_SPEED, _FOLLOWED, _UTF8 = 6, 8, 0x800
_ENCRYPTED: Final = 1 | 64 | 0x2000
_UNIX, _DOS = 3, 0
_DOS_FOLDER: Final = 16
_SIZES_64, _TIMES = 0x0001, 0x5455
# Times and owners of several systems, and fill bytes.
_EXTRAS: Final = (_SIZES_64, _TIMES, 0x000A, 0x5855, 0x7855, 0x7875, 0xCAFE, 0xD935, 0xA220)
_ISO: Final = (32769, b"CD001")


@dataclasses.dataclass(frozen=True, slots=True)
class ZipMember:
    """A member, as the list at the end has it. `offset` is where its own header begins."""

    name: str
    kind: Literal["file", "folder", "other"]
    stored_name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int


def read_zip(file: IO[bytes], most: int) -> Iterator[tuple[ZipMember, Iterator[bytes]]]:
    """Each member in the order of its content, and that. A zip of more than `most` members is refused."""
    _check_start(file)
    listed, end = _read_list(file, most)
    places = [*(member.offset for member in listed), end]
    if places[0] != 0:
        raise UnreadableArchiveError("it has bytes that its list does not name", PACK_AGAIN)
    for member, following in zip(listed, places[1:], strict=True):
        _check_supported(member)
        content = _read_local(file, member)
        _check_gap(file, member, content + member.packed, following)
        yield member, _unpack(file, member, content)


def _check_start(file: IO[bytes]) -> None:
    """libarchive takes some zips for another format, by marks in what a zip only stores."""
    file.seek(0)
    block = file.read(BLOCK)
    file.seek(_ISO[0])
    if is_header(block) or file.read(len(_ISO[1])) == _ISO[1]:
        raise UnreadableArchiveError("it has the marks of another format too", PACK_AGAIN)


def _read_list(file: IO[bytes], most: int) -> tuple[list[ZipMember], int]:
    """The members by their places, and where the list begins."""
    count, size, start = _find_list(file)
    if count > most:
        raise UnreadableArchiveError(f"it has more than {most} members", "pack only what the image needs")
    if size > _LARGEST_LIST:
        raise UnreadableArchiveError("its list of members is too large", "pack only what the image needs")
    file.seek(start)
    data = file.read(size)
    members, at = [], 0
    while at < len(data):
        member, at = _read_listed(data, at)
        members.append(member)
    if len(members) != count or len(data) != size:
        raise UnreadableArchiveError(f"its list has {len(members)} members, not {count}", PACK_AGAIN)
    return sorted(members, key=lambda member: member.offset), start


def _find_list(file: IO[bytes]) -> tuple[int, int, int]:
    """The number of members, and the size and the place of their list."""
    length = file.seek(0, 2)
    tail_at = max(0, length - _TAIL)
    file.seek(tail_at)
    tail = file.read(_TAIL)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail) or (at == 0 and tail_at):
        raise UnreadableArchiveError("its end is missing, or has a comment of more than 16 KB")
    _, disk, first, here, count, size, start, comment = _END.unpack_from(tail, at)
    end = tail_at + at
    if disk or first or here != count or end + _END.size + comment != length:
        raise UnreadableArchiveError("its end is damaged")
    if tail[max(0, at - _LOCATOR.size) : at].startswith(b"PK\x06\x07"):
        count, size, start, end = _read_end_64(file, end, (count, size, start))
    elif count == _NONE_16 or _NONE_32 in (size, start):
        raise UnreadableArchiveError("its end is damaged")
    if start + size != end:
        raise UnreadableArchiveError("its list of members is not where its end says", PACK_AGAIN)
    return count, size, start


def _read_end_64(file: IO[bytes], end: int, small: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """The same of a large zip, and where the list ends. `small` has what fits into the ordinary end."""
    place = end - _LOCATOR.size - _END_64.size
    file.seek(max(0, place))
    data = file.read(_END_64.size + _LOCATOR.size)
    if place < 0 or len(data) < _END_64.size + _LOCATOR.size:
        raise UnreadableArchiveError("its end is damaged")
    mark, length, _, _, disk, first, here, count, size, start = _END_64.unpack_from(data)
    _, locator_disk, stated, disks = _LOCATOR.unpack_from(data, _END_64.size)
    known = (mark, length, disk, first, here, locator_disk, stated, disks)
    if known != (b"PK\x06\x06", _END_64.size - 12, 0, 0, count, 0, place, 1):
        raise UnreadableArchiveError("its end is damaged")
    nothing = (_NONE_16, _NONE_32, _NONE_32)
    if any(one not in (large, none) for one, large, none in zip(small, (count, size, start), nothing, strict=True)):
        raise UnreadableArchiveError("its two ends do not agree", PACK_AGAIN)
    return count, size, start, place


def _read_listed(data: bytes, at: int) -> tuple[ZipMember, int]:
    """The member that is listed here, and where the next one is."""
    if len(data) - at < _LISTED.size or data[at : at + 4] != b"PK\x01\x02":
        raise UnreadableArchiveError("its list of members is damaged")
    fields = _LISTED.unpack_from(data, at)
    (
        _,
        made_by,
        _,
        flags,
        method,
        _,
        _,
        crc,
        packed,
        size,
        name_size,
        extra_size,
        comment,
        disk,
        _,
        attributes,
        place,
    ) = fields
    at += _LISTED.size
    name, extra = data[at : at + name_size], data[at + name_size : at + name_size + extra_size]
    following = at + name_size + extra_size + comment
    if following > len(data) or disk:
        raise UnreadableArchiveError("its list of members is damaged")
    size, packed, place = _read_extra(extra, (size, packed, place))
    text = decode_name(name, utf8=bool(flags & _UTF8))
    kind = _find_kind(text, made_by >> 8, attributes)
    return ZipMember(text, kind, name, flags, method, crc, packed, size, place), following


def _find_kind(name: str, system: int, attributes: int) -> Literal["file", "folder", "other"]:
    mode = stat.S_IFMT(attributes >> 16) if system == _UNIX else 0
    if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "other"
    if name.endswith("/"):
        return "folder"
    if mode == stat.S_IFDIR or (system == _DOS and attributes & _DOS_FOLDER):
        raise UnreadableArchiveError(f"{name!a} is a folder, and its name is a file's", PACK_AGAIN)
    return "file"


def _read_extra(data: bytes, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers, with those that did not fit into their fields."""
    found: dict[int, bytes] = {}
    while data:
        if len(data) < _EXTRA.size:
            raise UnreadableArchiveError("the extra fields of a member are damaged", PACK_AGAIN)
        kind, size = _EXTRA.unpack_from(data)
        value, data = data[_EXTRA.size : _EXTRA.size + size], data[_EXTRA.size + size :]
        if kind not in _EXTRAS or kind in found:
            raise UnreadableArchiveError(f"a member has the extra field {kind:#06x}, which tar.exe may use", PACK_AGAIN)
        if len(value) < max(size, kind == _TIMES):
            raise UnreadableArchiveError("the extra fields of a member are damaged", PACK_AGAIN)
        found[kind] = value
    large = found.get(_SIZES_64, b"")
    missing = sum(number == _NONE_32 for number in numbers)
    if len(large) < 8 * missing:
        raise UnreadableArchiveError("a member has no size", PACK_AGAIN)
    rest = iter(struct.unpack_from(f"<{missing}Q", large))
    return tuple(next(rest) if number == _NONE_32 else number for number in numbers)


def _check_supported(member: ZipMember) -> None:
    name = ascii(member.name)
    if member.flags & _ENCRYPTED:
        raise UnreadableArchiveError(f"{name} is encrypted", "pack its files again, without a password")
    if member.flags & ~(_SPEED | _FOLLOWED | _UTF8):
        raise UnreadableArchiveError(f"{name} has the flags {member.flags:#06x}, which are not known", PACK_AGAIN)
    if member.method not in METHODS:
        method = METHOD_NAMES.get(member.method, f"the method {member.method}")
        raise UnreadableArchiveError(
            f"{name} is compressed with {method}, which not every tar.exe of Windows can unpack", PACK_AGAIN
        )
    if member.kind == "folder" and member.size:
        raise UnreadableArchiveError(f"{name} is a folder and has content", PACK_AGAIN)


def _read_local(file: IO[bytes], member: ZipMember) -> int:
    """Where the content begins, behind the member's own header. That must say what the list says."""
    file.seek(member.offset)
    header = file.read(_LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
        raise UnreadableArchiveError(f"the header of {member.name!a} is damaged")
    _, _, flags, method, _, _, crc, packed, size, name_size, extra_size = _LOCAL.unpack(header)
    name, extra = file.read(name_size), file.read(extra_size)
    size, packed = _read_extra(extra, (size, packed))
    found, listed = (crc, packed, size), (member.crc, member.packed, member.size)
    # What follows the content may be missing before it.
    missing = 0 if flags & _FOLLOWED else None
    if (name, flags, method) != (member.stored_name, member.flags, member.method) or any(
        one not in (known, missing) for one, known in zip(found, listed, strict=True)
    ):
        raise UnreadableArchiveError(f"the header of {member.name!a} does not say what the list says", PACK_AGAIN)
    return member.offset + _LOCAL.size + len(name) + len(extra)


def _check_gap(file: IO[bytes], member: ZipMember, end: int, following: int) -> None:
    """Between two members there are only the checksum and the sizes of the first, if its flags say so."""
    forms = []
    if member.flags & _FOLLOWED:
        small = struct.pack("<L", member.crc)
        forms = [small + struct.pack(f"<2{width}", member.packed, member.size) for width in _widths(member)]
        forms += [b"PK\x07\x08" + form for form in forms]
    file.seek(end)
    if file.read(max(0, min(following - end, 32))) not in (forms or [b""]) or following < end:
        raise UnreadableArchiveError(f"it has bytes behind {member.name!a} that its list does not name", PACK_AGAIN)


def _widths(member: ZipMember) -> str:
    """The possible sizes of its numbers: four bytes each, or eight."""
    return "Q" if max(member.packed, member.size) > _NONE_32 else "LQ"


def _unpack(file: IO[bytes], member: ZipMember, start: int) -> Iterator[bytes]:
    file.seek(start)
    crc = size = 0
    for chunk in _inflate(file, member) if member.method == DEFLATED else _copy(file, member.packed):
        crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        if size > member.size:
            break
        yield chunk
    if (crc, size) != (member.crc, member.size):
        raise UnreadableArchiveError(f"the content of {member.name!a} does not have its size and checksum")


def _copy(file: IO[bytes], left: int) -> Iterator[bytes]:
    while left and (chunk := file.read(min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk


def _inflate(file: IO[bytes], member: ZipMember) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for packed in _copy(file, member.packed):
        rest = packed
        unpacked = b""
        # A full piece may leave some of it inside.
        while not inflater.eof and (rest or len(unpacked) == _CHUNK):
            yield (unpacked := inflater.decompress(rest, _CHUNK))
            rest = inflater.unconsumed_tail
        if rest:
            break
    else:
        if not inflater.unused_data and (inflater.eof or not member.packed):
            return
    raise UnreadableArchiveError(f"the compressed data of {member.name!a} does not end where it should")
