"""Makes zips of any form, record by record: well-formed ones, and those with which a reader can be fooled."""

from __future__ import annotations

import dataclasses
import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import Final

from tests.archives.corpus import Hostile
from tests.archives.tars import BLOCK, file, with_checksum

STREAMED: Final = 8
UTF8: Final = 0x800
Fields = dict[str, int | bytes]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A member. What is None is as it should be: `local` and `listed` replace fields of its two headers by name."""

    name: bytes = b"bin/a.exe"
    data: bytes = b"x"
    method: int = 8
    flags: int = 0
    extra: bytes = b""
    listed_extra: bytes = b""
    system: int = 3
    attributes: int = 0o100644 << 16
    local: Fields = dataclasses.field(default_factory=dict)
    listed: Fields = dataclasses.field(default_factory=dict)
    packed: bytes | None = None
    after: bytes = b""
    """What follows the content."""

    def content(self) -> bytes:
        """What is stored."""
        if self.packed is not None:
            return self.packed
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(self.data) + packer.flush() if self.method == STREAMED else self.data


def zip_of(*entries: Entry, comment: bytes = b"", between: bytes = b"", **end: int) -> bytes:
    """A zip of these members. `between` is before the list, and `end` has fields of the last record."""
    body, listing = b"", b""
    for entry in entries:
        content, crc = entry.content(), zlib.crc32(entry.data)
        fields: Fields = {
            "name": entry.name, "flags": entry.flags, "method": entry.method, "crc": crc, "packed": len(content),
            "size": len(entry.data), "offset": len(body), "attributes": entry.attributes, "disk": 0,
        }  # fmt: skip
        streamed: Fields = dict.fromkeys(("crc", "packed", "size"), 0) if entry.flags & STREAMED else {}
        body += _local(fields | streamed | entry.local, entry.extra) + content + entry.after
        if entry.flags & STREAMED and not entry.after:
            body += b"PK\7\x08" + struct.pack("<3L", crc, len(content), len(entry.data))
        listing += _listed(fields | entry.listed, entry.listed_extra or entry.extra, entry.system)
    body += between
    last = {
        "disk": 0,
        "first": 0,
        "here": len(entries),
        "count": len(entries),
        "size": len(listing),
        "start": len(body),
    }
    last |= end
    return body + listing + struct.pack("<4s4H2LH", b"PK\5\6", *last.values(), len(comment)) + comment


def _local(one: Fields, extra: bytes) -> bytes:
    name = bytes(one["name"]) if isinstance(one["name"], bytes) else b""
    numbers = (one["flags"], one["method"], 0, 33, one["crc"], one["packed"], one["size"], len(name), len(extra))
    return struct.pack("<4s5H3L2H", b"PK\3\4", 20, *numbers) + name + extra


def _listed(one: Fields, extra: bytes, system: int) -> bytes:
    name = bytes(one["name"]) if isinstance(one["name"], bytes) else b""
    numbers = (one["flags"], one["method"], 0, 33, one["crc"], one["packed"], one["size"], len(name), len(extra), 0)
    rest = (one["disk"], 0, one["attributes"], one["offset"])
    return struct.pack("<4s6H3L5H2L", b"PK\1\2", system << 8 | 20, 20, *numbers, *rest) + name + extra


def extra(kind: int, data: bytes) -> bytes:
    """An extra field of a member."""
    return struct.pack("<2H", kind, len(data)) + data


def large(*entries: Entry) -> bytes:
    """A zip whose end is in the form for large ones."""
    plain = zip_of(*entries)
    size, start = struct.unpack_from("<2L", plain, len(plain) - 10)
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, len(entries), len(entries), size, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, start + size, 1)
    small = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return plain[: start + size] + end + locator + small


class _Pipe(io.BytesIO):
    """A file that a writer cannot go back in."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


def made(
    method: int, names: Sequence[str] = ("bin/", "bin/a.exe", "bin/sub/b.dll", "LICENSE"), *, pipe: bool = False
) -> bytes:
    """What Python's zipfile writes."""
    out = _Pipe() if pipe else io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = method
            with archive.open(entry, "w", force_zip64=name.endswith(".dll")) as content:
                content.write(b"" if name.endswith("/") else name.encode() * 300)
    return out.getvalue()


def well_formed() -> dict[str, bytes]:
    """Zips that every reader reads, by what they are."""
    times = extra(0x5455, b"\3" + bytes(8)), extra(0x5455, b"\3" + bytes(4))
    owner = extra(0x7875, b"\1\4" + bytes(4) + b"\4" + bytes(4))
    return {
        "stored": made(zipfile.ZIP_STORED),
        "deflated": made(zipfile.ZIP_DEFLATED),
        "to a pipe": made(zipfile.ZIP_DEFLATED, pipe=True),
        "below one folder": made(zipfile.ZIP_DEFLATED, ("./bin/", "./bin/a.exe", "./bin/b.dll")),
        "a name in UTF-8": zip_of(Entry("bin/\u00e4.exe".encode(), flags=UTF8)),
        "times and owners": zip_of(Entry(extra=times[0] + owner, listed_extra=times[1] + owner)),
        "a comment": zip_of(Entry(), comment=b"release 1.2.3\n" * 9),
        "Windows' own attributes": zip_of(
            Entry(system=0, attributes=0x20), Entry(b"sub/", b"", 0, attributes=0x10, system=0)
        ),
        "streamed": zip_of(Entry(flags=STREAMED), Entry(b"b.dll", method=0, flags=STREAMED)),
        "streamed, with no mark": zip_of(Entry(flags=STREAMED, after=struct.pack("<3L", zlib.crc32(b"x"), 3, 1))),
        "large": large(Entry(), Entry(b"b.dll", b"y" * 4000)),
        "no members": zip_of(),
        "an empty file": zip_of(Entry(data=b"", method=0), Entry(b"b", b"")),
        "the list in another order": _reordered(),
    }


def _reordered() -> bytes:
    entries = Entry(), Entry(b"b.dll", b"y", 0)
    data = zip_of(*entries)
    start = struct.unpack_from("<L", data, len(data) - 6)[0]
    first = start + 46 + len(entries[0].name)
    return data[:start] + data[first : len(data) - 22] + data[start:first] + data[len(data) - 22 :]


def hostile() -> dict[str, Hostile]:
    """Zips that two readers read in two ways, by what they are."""
    signed, other = Entry(data=b"signed"), Entry(b"version.dll", b"other")
    whole, hidden = zip_of(signed), zip_of(signed, other)
    tail = zip_of(signed, comment=b" " * 20_000)
    iso = Entry(b"a", bytes(32768 - 31) + b"\1CD001\1" + bytes(40_000), 0)
    polyglot = Entry(b"a", file(b"x")[31:] + bytes(BLOCK), 0)
    as_tar = zip_of(polyglot)
    path = b"\1" + struct.pack("<L", zlib.crc32(signed.name)) + b"bin/b.exe"
    unlike, gap, two = "does not say what the list says", "that its list does not name", "not where its end says"
    return {
        "a comment of 20 kB": Hostile(tail, "a comment of more than 16 KB"),
        "a tail of 20 kB": Hostile(whole + bytes(20_000), "its end is missing"),
        "a tail": Hostile(whole + b"1", "its end is damaged"),
        "another end in the comment": Hostile(zip_of(signed, comment=zip_of()), two),
        "another zip in the comment": Hostile(zip_of(signed, comment=hidden), "its list of members is not where"),
        "wrong counts": Hostile(zip_of(signed, other, here=1), "its end is damaged"),
        "too few": Hostile(zip_of(signed, other, here=1, count=1), "its list has 2 members, not 1"),
        "another disk": Hostile(zip_of(signed, disk=1), "its end is damaged"),
        "a disk of a member": Hostile(
            zip_of(dataclasses.replace(signed, listed={"disk": 1})), "list of members is damaged"
        ),
        "a Unicode path": Hostile(zip_of(dataclasses.replace(signed, extra=extra(0x7075, path))), "extra field 0x7075"),
        "its own attributes": Hostile(
            zip_of(dataclasses.replace(signed, extra=extra(0x6C78, b"\4" + bytes(4)))), "extra field 0x6c78"
        ),
        "AES": Hostile(
            zip_of(dataclasses.replace(signed, extra=extra(0x9901, b"\2\0AE\3\x08\0"))), "extra field 0x9901"
        ),
        "damaged extra fields": Hostile(
            zip_of(dataclasses.replace(signed, extra=b"\x55\x54\x09\0")), "fields of a member are damaged"
        ),
        "half an extra field": Hostile(
            zip_of(dataclasses.replace(signed, extra=b"\0\0")), "fields of a member are damaged"
        ),
        "empty times": Hostile(
            zip_of(dataclasses.replace(signed, extra=extra(0x5455, b""))), "fields of a member are damaged"
        ),
        "another name": Hostile(zip_of(dataclasses.replace(signed, local={"name": b"bin/b.exe"})), unlike),
        "another size": Hostile(zip_of(dataclasses.replace(signed, local={"size": 7})), unlike),
        "another checksum": Hostile(zip_of(dataclasses.replace(signed, local={"crc": 7})), unlike),
        "another method": Hostile(zip_of(dataclasses.replace(signed, local={"method": 0})), unlike),
        "a member that is not listed": Hostile(_only_listed(1, other, signed), gap),
        "a last member that is not listed": Hostile(_only_listed(0, signed, other), gap),
        "a gap": Hostile(zip_of(signed, between=b"PK\3\4 "), gap),
        "bytes before it": Hostile(b"PK\3\4" + whole, two),
        "a member twice": Hostile(_listed_twice(signed), gap),
        "LZMA": Hostile(
            zip_of(dataclasses.replace(signed, method=14)), "compressed with LZMA, which not every tar.exe"
        ),
        "Deflate64": Hostile(zip_of(dataclasses.replace(signed, method=9)), "compressed with Deflate64"),
        "an unknown method": Hostile(zip_of(dataclasses.replace(signed, method=77)), "compressed with the method 77"),
        "encrypted": Hostile(zip_of(dataclasses.replace(signed, flags=1)), "is encrypted"),
        "patch data": Hostile(zip_of(dataclasses.replace(signed, flags=32)), "has the flags 0x0020"),
        "a folder that is a file": Hostile(
            zip_of(dataclasses.replace(signed, system=0, attributes=16)), "is a folder, and its name"
        ),
        "a folder of Unix": Hostile(
            zip_of(dataclasses.replace(signed, attributes=0o40755 << 16)), "is a folder, and its name"
        ),
        "a folder with content": Hostile(zip_of(Entry(b"bin/", b"x")), "is a folder and has content"),
        "a link": Hostile(zip_of(dataclasses.replace(signed, attributes=0o120777 << 16)), "a link or a device"),
        "a file and a folder": Hostile(zip_of(Entry(b"bin"), signed), "a file and a folder of one name"),
        "an unknown charset": Hostile(zip_of(Entry(b"\x84.exe")), "stored in an unknown charset"),
        "a wrong checksum": Hostile(
            zip_of(dataclasses.replace(signed, local={"crc": 7}, listed={"crc": 7})), "its size and checksum"
        ),
        "less content": Hostile(zip_of(Entry(data=b"xy", packed=Entry().content())), "its size and checksum"),
        "data behind the compressed": Hostile(
            zip_of(Entry(packed=Entry().content() + b"1")), "does not end where it should"
        ),
        "no checksum behind it": Hostile(zip_of(Entry(flags=STREAMED, after=bytes(12))), gap),
        "an ISO image": Hostile(zip_of(iso), "the marks of another format"),
        "a tar": Hostile(with_checksum(as_tar[:BLOCK]) + as_tar[BLOCK:], "the marks of another format"),
        "ends that differ": Hostile(large(signed)[:-10] + bytes(4) + large(signed)[-6:], "two ends do not agree"),
    }


def _only_listed(kept: int, *entries: Entry) -> bytes:
    """A zip of these members that lists one of them."""
    whole = zip_of(*entries)
    start = struct.unpack_from("<L", whole, len(whole) - 6)[0]
    first = start + sum(46 + len(entry.name) for entry in entries[:kept])
    listing = whole[first : first + 46 + len(entries[kept].name)]
    return whole[:start] + listing + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(listing), start, 0)


def _listed_twice(entry: Entry) -> bytes:
    whole = zip_of(entry)
    start = struct.unpack_from("<L", whole, len(whole) - 6)[0]
    listing = whole[start : len(whole) - 22]
    again = listing.replace(entry.name, b"bin/b.exe")
    return whole[:start] + listing + again + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, 2 * len(listing), start, 0)
