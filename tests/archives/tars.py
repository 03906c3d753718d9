"""Makes tars of any form, block by block: well-formed ones, and those with which a reader can be fooled."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import Final

from tests.archives.corpus import Hostile

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)


def header(name: bytes, size: int = 0, flag: bytes = b"0", **fields: bytes) -> bytes:
    """A header of POSIX's form. `fields` are bytes at an offset, by names such as `at345`."""
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    block[:100] = name.ljust(100, b"\0")
    block[124:136] = b"%011o\0" % size
    block[156:157] = flag
    for place, value in fields.items():
        at = int(place.removeprefix("at"))
        block[at : at + len(value)] = value
    return with_checksum(block)


def with_checksum(block: bytes | bytearray) -> bytes:
    """The header with the checksum of its bytes."""
    changed = bytearray(block)
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)


def padded(data: bytes) -> bytes:
    """The content of a member, up to the end of its last block."""
    return data + bytes(-len(data) % BLOCK)


def file(name: bytes, data: bytes = b"x", flag: bytes = b"0", **fields: bytes) -> bytes:
    """A member and its content."""
    return header(name, len(data), flag, **fields) + padded(data)


def pax(flag: bytes = b"x", /, **attributes: str) -> bytes:
    """A header with attributes, for the next member or for all."""
    return file(b"PaxHeaders/x", b"".join(record(key, value) for key, value in attributes.items()), flag)


def record(key: str, value: str) -> bytes:
    """An attribute with its length, which counts its own digits."""
    rest = f" {key}={value}\n".encode()
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


def long_name(name: bytes) -> bytes:
    """GNU's header with the name of the next member."""
    return file(b"././@LongLink", name + b"\0", b"L")


def made(form: int, *, dotted: bool = False) -> bytes:
    """What Python's tarfile writes: folders, programs, an empty file, a long name, times and owners."""
    out, start = io.BytesIO(), "./" if dotted else ""
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in {
            "bin/": None,
            "bin/containerd.exe": b"MZ" * 700,
            "bin/ctr.exe": b"MZ",
            "bin/empty": b"",
            f"{'long/' * 22}name.txt": b"1" * 512,
        }.items():
            entry = tarfile.TarInfo(start + name)
            entry.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            entry.size, entry.mtime, entry.uid, entry.uname = len(data or b""), 1_700_000_000, 1000, "builder"
            archive.addfile(entry, io.BytesIO(data or b""))
    return out.getvalue()


def well_formed() -> dict[str, bytes]:
    """Tars that every reader reads, by what they are."""
    plain = {
        "ustar": made(tarfile.USTAR_FORMAT),
        "gnu": made(tarfile.GNU_FORMAT),
        "pax": made(tarfile.PAX_FORMAT),
        "tar -C folder .": header(b"./", flag=b"5") + made(tarfile.GNU_FORMAT, dotted=True),
        "git archive": pax(b"g", comment="53b890a4" * 5) + made(tarfile.USTAR_FORMAT),
        "pax with a name in UTF-8": pax(path="bin/\u00e4.exe", mtime="1700000000.5") + file(b"bin/?.exe") + END,
        "pax with a raw name that ends with a slash": pax(path="bin/a.exe") + file(b"bin/") + END,
        "gnu with a raw name that ends with a slash": long_name(b"bin/a.exe") + file(b"bin/") + END,
        "pax with the size that is in the header": pax(size="1", uname="\u00e4", uid="5") + file(b"a.exe") + END,
        "an old type of a file": file(b"a.exe", flag=b"\0") + END,
        "one block at the end": file(b"a.exe") + bytes(BLOCK),
        "a prefix": file(b"a.exe", at345=b"bin/sub") + END,
        "a binary size": header(b"a.exe", at124=b"\x80" + bytes(10) + b"\x01") + padded(b"x") + END,
        "the times of GNU": file(b"a.exe", at257=b"ustar  \0", at345=b"14000000000\0" * 2) + END,
        "no members, and folders": header(b"bin/", flag=b"5") + header(b"bin/sub", flag=b"5") + END,
    }
    tar = made(tarfile.PAX_FORMAT)
    halves = gzip.compress(tar[:1000], mtime=0) + gzip.compress(tar[1000:], mtime=0)
    packed = {"gzip": gzip.compress(tar, mtime=0), "gzip in two members": halves, "gzip and zeros": halves + bytes(600)}
    return plain | packed


def hostile() -> dict[str, Hostile]:
    """Tars that two readers read in two ways, by what they are."""
    signed, other = file(b"bin/a.exe", b"signed"), file(b"version.dll", b"other")
    gnu = b"ustar  \0"
    packed = gzip.compress(signed + END, mtime=0)
    late = signed + END + other + END
    return {
        "a damaged header in the middle": Hostile(signed + b"\1" + other[1:] + END, "a header is damaged"),
        "a path for all members": Hostile(
            pax(b"g", path="version.dll") + signed + END, "a header of all files has path"
        ),
        "a size for all members": Hostile(pax(b"g", size="0") + signed + END, "a header of all files has size"),
        "a folder with content": Hostile(file(b"bin", other, b"5") + signed + END, "is no file and has content"),
        "a file that ends with a slash": Hostile(file(b"bin/a.exe/", other) + END, "is no file and has content"),
        "a pax path of a folder": Hostile(pax(path="bin/b.exe/") + file(b"b.exe", other) + END, "has content"),
        "a GNU name of a folder": Hostile(long_name(b"bin/b.exe/") + file(b"b.exe", other) + END, "has content"),
        "a size of a folder": Hostile(pax(size="1024") + header(b"bin", flag=b"5") + other + END, "has two sizes"),
        "two sizes": Hostile(pax(size="0") + file(b"a", other) + END, "has two sizes, 1024 and 0"),
        "data behind the end": Hostile(late, "other data behind its end"),
        "data behind gzip's end": Hostile(packed + b"12345678", "incorrect header check"),
        "gzip behind zeros": Hostile(packed + b"\0" + gzip.compress(late), "other data after its compressed data"),
        "no end": Hostile(signed, "it has no end"),
        "cut off": Hostile(signed[:700], "it ends inside a file"),
        "the end behind a header": Hostile(pax(path="a") + END, "it ends behind the header of a file"),
        "two headers": Hostile(pax(path="a") + pax(path="b") + signed + END, "several headers for one file"),
        "two kinds of headers": Hostile(long_name(b"a") + pax(path="b") + signed + END, "several headers for one file"),
        "an attribute twice": Hostile(
            file(b"x", record("path", "a") + record("path", "b"), b"x") + signed + END, "attribute 'path' twice"
        ),
        "a damaged attribute": Hostile(
            file(b"x", b"8 path=a\n", b"x") + signed + END, "attributes of a file are damaged"
        ),
        "sparse": Hostile(file(b"x", record("GNU.sparse.major", "1"), b"x") + signed + END, "'GNU.sparse.major'"),
        "sparse of star": Hostile(file(b"x", record("SCHILY.realsize", "9"), b"x") + signed + END, "'SCHILY.realsize'"),
        "sparse of GNU": Hostile(
            file(b"a", at257=gnu, at386=b"00000000001\0") + END, "fields that are not of its form"
        ),
        "another size of GNU": Hostile(file(b"a", at257=gnu, at483=b"00000000000\0") + END, "not of its form"),
        "several volumes": Hostile(file(b"a", flag=b"M") + END, "is of the type b'M'"),
        "an unknown type": Hostile(file(b"a", flag=b"Z") + END, "is of the type b'Z'"),
        "a name behind its end": Hostile(file(b"a\0b") + END, "a name in a header is damaged"),
        "no form": Hostile(file(b"a") + file(b"b", at257=bytes(8)) + END, "neither POSIX's form nor GNU's"),
        "a wrong number": Hostile(file(b"a", at100=b"0000x44\0") + END, "fields that are not of its form"),
        "a size that is no number": Hostile(header(b"a", at124=b"1 1\0") + END, "fields that are not of its form"),
        "the mark of bzip2": Hostile(file(b"BZh91AY&SY.exe") + END, "the mark of bzip2"),
        "an unknown charset": Hostile(file("\u00e4.exe".encode()) + END, "stored in an unknown charset"),
        "no UTF-8": Hostile(file(b"x", b"11 path=a\xff\n", b"x") + signed + END, "is not valid UTF-8"),
        "a character in parts": Hostile(pax(path="a\u0308.exe") + signed + END, "has characters in parts"),
        "a file and a folder": Hostile(file(b"bin") + signed + END, "'bin': a file and a folder of one name"),
        "a folder and a file": Hostile(signed + file(b"BIN") + END, "a file and a folder of one name"),
        "a link": Hostile(header(b"a", flag=b"2", at157=b"b") + END, "a link or a device"),
        "a link with a long name": Hostile(
            pax(linkpath="b" * 120) + header(b"a", flag=b"2") + END, "a link or a device"
        ),
        "where a file leads, in pax": Hostile(pax(linkpath="b") + signed + END, "a header says where it leads"),
        "where a file leads": Hostile(file(b"@", b"b\0", b"K") + signed + END, "a header says where it leads"),
        "a folder without a name": Hostile(header(b"", flag=b"5") + END, "a name that Windows does not allow"),
        "several dots": Hostile(file(b"././a") + END, "a name that Windows does not allow"),
    }
