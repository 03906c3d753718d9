"""What is inside an MSI: the files of its cabinets, under their names on the machine. What cannot be read is named."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.authenticode.compound_file import CompoundFile
from imagegen.inspect.cabinet import CabinetError, open_cabinet
from imagegen.inspect.installer_package import PackageError, open_package
from imagegen.rehearsal.signing.compound_file import make_compound_file
from tests.authenticode.support import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Sequence

# Longer than a block, so that one block needs the one before it.
LONG = b"".join(hashlib.sha256(str(at).encode()).digest() for at in range(40)) * 40
FILES = {"one": LONG, "two": b"", "three": b"three" * 7000}
MSZIP, LZX, QUANTUM = 1, 0x1503, 2


def cabinet(
    files: dict[str, bytes], method: int = MSZIP, *, flags: int = 0, offsets: Sequence[int] = (), folder: int = 0
) -> bytes:
    """A cabinet with one folder."""
    whole, blocks, before = b"".join(files.values()), [], b""
    for start in range(0, len(whole), 0x8000):
        part = whole[start : start + 0x8000]
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=before)
        packed = b"CK" + deflater.compress(part) + deflater.flush() if method == MSZIP else part
        blocks.append(struct.pack("<IHH", 0, len(packed), len(part)) + packed)
        before = part
    rows, at = b"", 0
    for index, (name, data) in enumerate(files.items()):
        offset = offsets[index] if offsets else at
        rows += struct.pack("<IIHHHH", len(data), offset, folder, 0, 0, 0x80) + name.encode() + b"\0"
        at += len(data)
    start = 36 + 8 + len(rows)
    body = struct.pack("<IHH", start, len(blocks), method) + rows + b"".join(blocks)
    header = struct.pack("<4sIIIIIBBHHHHH", b"MSCF", 0, 36 + len(body), 0, 44, 0, 3, 1, 1, len(files), flags, 0, 0)
    return header + body


def contents(file: Path) -> dict[str, bytes]:
    return {name: b"".join(chunks) for name, chunks in open_cabinet(file)}


@pytest.mark.parametrize("method", [MSZIP, 0])
def test_a_cabinet_gives_its_files(tmp_path: Path, method: int) -> None:
    file = tmp_path / "cabinet"
    file.write_bytes(cabinet(FILES, method))
    assert contents(file) == FILES
    # What nobody reads is passed over.
    assert [name for name, _ in open_cabinet(file)] == list(FILES)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (cabinet(FILES, LZX), "is compressed with LZX, which imagegen cannot unpack"),
        (cabinet(FILES, QUANTUM), "is compressed with Quantum, which imagegen cannot unpack"),
        (cabinet(FILES, 7), "is compressed with an unknown method, which imagegen cannot unpack"),
        (cabinet(FILES, flags=1), "goes on in another cabinet"),
        (cabinet(FILES, folder=0xFFFD), "has a file in another cabinet"),
        (cabinet(FILES, offsets=[0, len(LONG), 1]), "has files that overlap"),
        (cabinet(FILES, offsets=[0, len(LONG), len(LONG) + 1]), "is too short for its files"),
        (cabinet(FILES)[:-9], "is damaged"),
        (cabinet(FILES)[:50], "is too short"),
        (cabinet({"x" * 300: b"x"}), "has a file without a valid name"),
        (cabinet(FILES).replace(b"CK", b"KC", 1), "is damaged"),
        (b"MSCF", "is too short"),
        (b"x" * 100, "is not a cabinet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cabinet_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, says: str) -> None:
    file = tmp_path / "cabinet"
    file.write_bytes(data)
    with pytest.raises(CabinetError) as raised:
        contents(file)
    assert str(raised.value).startswith(says)


def test_a_package_has_the_files_of_its_cabinet_under_their_names_on_the_machine(tmp_path: Path) -> None:
    found = {one.name: b"".join(one.chunks) for one in open_package(FIXTURES / "package.msi", tmp_path)}
    assert found == {"program.exe": (FIXTURES / "program.exe").read_bytes()}
    assert list(tmp_path.iterdir()) == []


def _package(cabinet_bytes: bytes) -> bytes:
    """The real package with another cabinet."""
    return make_compound_file({**_streams((FIXTURES / "package.msi").read_bytes()), "example.cab": cabinet_bytes})


def _streams(data: bytes) -> dict[str, bytes]:
    compound = CompoundFile(io.BytesIO(data))
    entries = {entry.name.decode("utf-16-le"): entry for entry in compound.root.children}
    streams = {name: compound.read(entry, 1 << 20, name) for name, entry in entries.items()}
    return {name: content for name, content in streams.items() if not content.startswith(b"MSCF")}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (_package(cabinet({"Program": b"MZ"}, LZX)), "has a cabinet that is compressed with LZX"),
        (_package(b"nothing"), "does not hold the file program.exe: it is outside of the package"),
        (_package(cabinet({"Other": b"MZ"})), "does not hold the file program.exe: it is outside of the package"),
        (make_compound_file({"Payload": b"x"}), "has no database of Windows Installer"),
        (b"no package at all", "is damaged"),
        ((FIXTURES / "package.msi").read_bytes()[:3000], "is damaged"),
    ],
    ids=["lzx", "no cabinet", "another file", "no database", "no compound file", "cut"],
)
def test_a_package_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, says: str) -> None:
    file = tmp_path / "package.msi"
    file.write_bytes(data)
    with pytest.raises(PackageError) as raised:
        [b"".join(one.chunks) for one in open_package(file, tmp_path)]
    assert str(raised.value).startswith(says)
