"""Reads a tar as libarchive does, which is tar.exe of Windows: only what all its versions read in the same way.

Everything else is refused: sparse files, headers that say two things, and data behind the end. libarchive's own reader
is libarchive/archive_read_support_format_tar.c; versions 3.3.2 to 3.8.9 were read.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, Literal, Protocol

from imagegen.inspect.unpacked import PACK_AGAIN, UnreadableArchiveError

BLOCK: Final = 512
# libarchive 3.3.2 reads no longer ones.
_LARGEST_HEADER: Final = 999_999
# Names and attributes, not files: more than this is an attack on memory.
_ALL_HEADERS: Final = 64 << 20
_POSIX: Final = b"ustar\x0000"
_GNU: Final = b"ustar  \x00"
_FILES: Final = (b"0", b"\x00")
_FOLDER: Final = b"5"
# Links, devices and pipes. No content follows them.
_OTHERS: Final = (b"1", b"2", b"3", b"4", b"6")
# A pax header of one member and of all, and GNU's long names of a member and of what it links to.
_PAX, _GLOBAL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"
# A size from here on does not fit into the field of a header.
_LARGE: Final = 8 << 30
_SIZE: Final = slice(124, 136)
# What libarchive accepts as a number: octal digits between blanks, a binary number, or nothing.
_NUMBER: Final = re.compile(rb"[\x80\xff\x00].*| *[0-7]*[ \x00]*", re.DOTALL)
_OCTAL: Final = re.compile(rb" *([0-7]+)[ \x00]*")
_CHECKSUM: Final = slice(148, 156)
# Mode, owner, group, size and time, and the two numbers of a device.
_NUMBERS: Final = tuple(slice(*ends) for ends in ((100, 108), (108, 116), (116, 124), (124, 136), (136, 148)))
_DEVICE: Final = (slice(329, 337), slice(337, 345))
_RECORD: Final = re.compile(rb"([1-9][0-9]{0,5}) ([^=\x00\n]+)=")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,19}")
_TIME: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]*)?")
# The form of each attribute that does not change which files there are. Those with a dot are of their own writers.
_HARMLESS: Final = {
    **dict.fromkeys(("atime", "ctime", "mtime", "LIBARCHIVE.creationtime"), _TIME),
    **dict.fromkeys(("uid", "gid", "SCHILY.dev", "SCHILY.ino", "SCHILY.nlink"), _DECIMAL),
    **dict.fromkeys(("uname", "gname", "comment"), re.compile(r"[^\x00]*")),
}
_COUNTING: Final = {**dict.fromkeys(("path", "linkpath"), re.compile(r"[^\x00]+")), "size": re.compile(r"[0-9]{1,18}")}
_FOREIGN: Final = ("SCHILY.xattr.", "LIBARCHIVE.xattr.", "RHT.security.")
# bzip2's mark can be a file's name, and libarchive would unpack the tar as bzip2 first.
_BZIP2: Final = re.compile(rb"BZh[1-9]1AY&SY")


class Bytes(Protocol):
    """The bytes of a tar, from its beginning."""

    def read(self, size: int) -> bytes:
        """This many bytes, or fewer at the end."""

    def skip(self, size: int) -> None:
        """Go forward. Behind the end, nothing can be read."""


@dataclasses.dataclass
class TarMember:
    """A member. The content of a file can be read until the next member is asked for."""

    name: str
    kind: Literal["file", "folder", "other"]
    size: int
    _source: Bytes
    _left: int

    def read(self, size: int) -> bytes:
        """The next bytes of the content, this many or fewer; none at its end."""
        data = self._source.read(min(size, self._left))
        if len(data) < min(size, self._left):
            raise UnreadableArchiveError("it ends inside a file")
        self._left -= len(data)
        return data

    def skip(self) -> None:
        """Go to the next header."""
        padding = -self.size % BLOCK
        if self._left + padding:
            self._source.skip(self._left + padding - 1)
            if not self._source.read(1):
                raise UnreadableArchiveError("it ends inside a file")


@dataclasses.dataclass(frozen=True)
class _Extra:
    """What the headers before a member say of it."""

    kinds: frozenset[bytes] = frozenset()
    name: str | None = None
    size: int | None = None


def read_tar(source: Bytes, limit: int) -> Iterator[TarMember]:
    """Each member, in the order of the tar. A tar of more than `limit` bytes is refused."""
    extra, headers, position = _Extra(), 0, 0
    while block := _read_header(source):
        if not position and _BZIP2.match(block):
            raise UnreadableArchiveError("its first name is the mark of bzip2", PACK_AGAIN)
        kind, size = block[156:157], _read_size(block[_SIZE])
        if kind in (_PAX, _GLOBAL, _LONG_NAME, _LONG_LINK):
            headers += BLOCK + size
            if size > _LARGEST_HEADER or headers > _ALL_HEADERS:
                raise UnreadableArchiveError("its headers are too large", PACK_AGAIN)
            extra = _add_extra(extra, kind, _read_body(source, size))
            continue
        member = _make_member(source, block, size, extra)
        position += BLOCK + member.size
        if position > limit:
            raise UnreadableArchiveError("it is too large", "pack only what the image needs")
        extra = _Extra()
        yield member
        member.skip()
    if extra.kinds:
        raise UnreadableArchiveError("it ends behind the header of a file")
    _check_end(source, limit - position)


def is_header(block: bytes) -> bool:
    """Whether libarchive may take these bytes for the header of a tar."""
    stated = re.match(rb"[ \t]*([0-7]*)", block[_CHECKSUM])
    signed = sum(block) - 256 * sum(byte > 127 for byte in block)
    sums = (one - sum(block[_CHECKSUM]) + 8 * ord(" ") for one in (sum(block), signed))
    return len(block) == BLOCK and stated is not None and int(stated[1] or b"0", 8) in sums


def _read_header(source: Bytes) -> bytes:
    """The next header; nothing at the end."""
    block = source.read(BLOCK)
    if len(block) < BLOCK:
        raise UnreadableArchiveError("it has no end")
    if not block.strip(b"\0"):
        return b""
    checksum = _OCTAL.fullmatch(block[_CHECKSUM])
    if not checksum or int(checksum[1], 8) != sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" "):
        raise UnreadableArchiveError("a header is damaged")
    form = block[257:265]
    if form not in (_POSIX, _GNU):
        raise UnreadableArchiveError("a header has neither POSIX's form nor GNU's", PACK_AGAIN)
    # Behind the times in GNU's form, only sparse files and archives of several volumes have something.
    unused = block[369:] if form == _GNU else block[500:]
    if unused.strip(b"\0") or not all(_NUMBER.fullmatch(block[number]) for number in (*_NUMBERS, *_DEVICE)):
        raise UnreadableArchiveError("a header has fields that are not of its form", PACK_AGAIN)
    return block


def _read_size(field: bytes) -> int:
    if field.startswith(b"\x80"):
        return int.from_bytes(field[1:], "big")
    octal = _OCTAL.fullmatch(field)
    if not octal:
        raise UnreadableArchiveError(f"{field!r} is not a valid size")
    return int(octal[1], 8)


def _read_body(source: Bytes, size: int) -> bytes:
    padded = size + -size % BLOCK
    body = source.read(padded)
    if not size or len(body) < padded:
        raise UnreadableArchiveError("it ends inside a header, or a header is empty")
    return body[:size]


def _add_extra(extra: _Extra, kind: bytes, body: bytes) -> _Extra:
    # Which one of two counts is not the same in all versions.
    if kind in extra.kinds or (extra.kinds and kind in (_PAX, _GLOBAL)) or _PAX in extra.kinds:
        raise UnreadableArchiveError("it has several headers for one file", PACK_AGAIN)
    if kind in (_LONG_NAME, _LONG_LINK):
        name = decode_name(body.removesuffix(b"\0"), utf8=False)
        return _Extra(extra.kinds | {kind}, name if kind == _LONG_NAME else extra.name)
    found = dict(_read_records(body))
    if kind == _GLOBAL:
        # `git archive` writes the name of its commit there.
        if found.keys() - {"comment"}:
            raise UnreadableArchiveError(f"a header of all files has {', '.join(sorted(found))}", PACK_AGAIN)
        return extra
    kinds = {kind, _LONG_LINK} if "linkpath" in found else {kind}
    return _Extra(frozenset(kinds), found.get("path"), int(found["size"]) if "size" in found else None)


def _read_records(body: bytes) -> Iterator[tuple[str, str]]:
    """The attributes of a pax header. One that could change which files there are, in a way that is not known here, is
    refused."""
    seen = set()
    while body:
        start = _RECORD.match(body)
        length = int(start[1]) if start else 0
        if not start or length <= start.end() or body[length - 1 : length] != b"\n":
            raise UnreadableArchiveError("the attributes of a file are damaged")
        key, value, body = start[2].decode("latin-1"), body[start.end() : length - 1], body[length:]
        if key in seen:
            raise UnreadableArchiveError(f"a file has the attribute {key!a} twice", PACK_AGAIN)
        seen.add(key)
        if key.startswith(_FOREIGN):
            continue
        text = decode_name(value, utf8=True) if key == "path" else _decode(value)
        form = _HARMLESS.get(key) or _COUNTING.get(key)
        if not form or not form.fullmatch(text):
            raise UnreadableArchiveError(f"a file has the attribute {key!a}, which not every tar.exe reads", PACK_AGAIN)
        yield key, text


def decode_name(name: bytes, *, utf8: bool) -> str:
    """A name that is the same in every charset of Windows, or in UTF-8 if that is what it is stored in."""
    if not utf8 and not name.isascii():
        raise UnreadableArchiveError(f"the name {name!r} is stored in an unknown charset", PACK_AGAIN)
    text = _decode(name)
    # libarchive composes the characters of a name.
    if unicodedata.normalize("NFC", text) != text:
        raise UnreadableArchiveError(f"the name {text!a} has characters in parts, which are composed", PACK_AGAIN)
    return text


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnreadableArchiveError(f"{value!r} is not valid UTF-8", PACK_AGAIN) from error


def _make_member(source: Bytes, block: bytes, size: int, extra: _Extra) -> TarMember:
    flag, name = block[156:157], extra.name
    # If another header has the name, the one in this header is cut off, and does not count.
    if name is None:
        prefix = _read_text(block[345:500]) if block[257:265] == _POSIX else ""
        name = f"{prefix.removesuffix('/')}/{_read_text(block[:100])}" if prefix else _read_text(block[:100])
    if flag not in (*_FILES, _FOLDER, *_OTHERS):
        raise UnreadableArchiveError(f"{name!a} is of the type {flag!r}, which is no file and no folder", PACK_AGAIN)
    if _LONG_LINK in extra.kinds and flag not in _OTHERS:
        raise UnreadableArchiveError(f"{name!a} is no link, and a header says where it leads", PACK_AGAIN)
    if extra.size is not None and extra.size != size:
        if extra.size < _LARGE:
            raise UnreadableArchiveError(f"{name!a} has two sizes, {size} and {extra.size}", PACK_AGAIN)
        size = extra.size
    if flag in _FILES and not name.endswith("/"):
        return TarMember(name, "file", size, source, size)
    if size:
        raise UnreadableArchiveError(f"{name!a} is no file and has content", PACK_AGAIN)
    return TarMember(name, "other" if flag in _OTHERS else "folder", 0, source, 0)


def _read_text(field: bytes) -> str:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise UnreadableArchiveError("a name in a header is damaged")
    return decode_name(text, utf8=False)


def _check_end(source: Bytes, limit: int) -> None:
    """tar.exe ignores what is behind the end. Another reader may not."""
    while rest := source.read(1 << 18):
        limit -= len(rest)
        if rest.strip(b"\0") or limit < 0:
            raise UnreadableArchiveError("it has other data behind its end", PACK_AGAIN)
