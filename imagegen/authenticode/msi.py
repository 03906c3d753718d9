"""Reads compound files (OLE structured storage, [MS-CFB]), and MSI packages, which are such files.

Streams are read as ranges of the file: none is ever in memory as a whole, unlike in olefile. Damage is MalformedData.
"""

import array
import dataclasses
import hashlib
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

from imagegen.authenticode.cms import LARGEST_SIGNATURE, SignedDigest
from imagegen.authenticode.files import Subject, file_size, read_exactly
from imagegen.authenticode.model import FileKind, MalformedData, counted

MAGIC: Final = bytes.fromhex("D0CF11E0A1B11AE1")
STORAGE: Final = 1
STREAM: Final = 2
ROOT: Final = 5

_HEADER: Final = struct.Struct("<8s16xHHHHH6xIIIIIIIII")
_HEADER_SIZE: Final = 512
_FORMS: Final = {3: 9, 4: 12}
_MINI_SHIFT: Final = 6
_CUTOFF: Final = 4096
_IN_HEADER: Final = 109
_LAST_SECTOR: Final = 0xFFFFFFFA
_END: Final = 0xFFFFFFFE
_FREE: Final = 0xFFFFFFFF
_ENTRY: Final = struct.Struct("<64sHBBIII16s4s8s8sIQ")
_NO_ENTRY: Final = 0xFFFFFFFF
_MOST_ENTRIES: Final = 100_000
_DEEPEST: Final = 32


@dataclasses.dataclass(frozen=True)
class Entry:
    """A storage or a stream. `name` is in UTF-16, without the zero at its end."""

    kind: int
    name: bytes
    class_id: bytes
    state: bytes
    created: bytes
    modified: bytes
    start: int
    size: int
    children: "Sequence[Entry]" = ()


class CompoundFile:
    """A compound file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._file_size = file_size(file)
        raw = read_exactly(file, 0, _HEADER_SIZE, "the header")
        magic, _, version, order, shift, mini_shift, *rest = _HEADER.unpack_from(raw)
        directories, fats, first_directory, _, cutoff, first_mini_fat, mini_fats, first_difat, difats = rest
        if magic != MAGIC or order != 0xFFFE or _FORMS.get(version) != shift or mini_shift != _MINI_SHIFT:
            raise MalformedData("its header is not that of a compound file")
        if cutoff != _CUTOFF or (version == min(_FORMS) and directories):
            raise MalformedData("its header is damaged")
        self._wide_sizes = version != min(_FORMS)
        self._shift: int = shift
        # Sector 0 follows the header, which fills one sector.
        self._sectors = max(0, -(-self._file_size // (1 << shift)) - 1)
        self._fat = self._read_fat(raw, fats, first_difat, difats)
        self._mini_fat = self._read_table(self._chain(first_mini_fat, mini_fats) if mini_fats else [])
        entries = self._read_entries(first_directory)
        root = entries[0] if entries else None
        if root is None or root.kind != ROOT:
            raise MalformedData("it has no root entry")
        self._mini_stream = self._chain(root.start, self._count(root.size)) if root.size else []
        self.root = self._with_children(0, entries, set(), 0)

    @property
    def end(self) -> int:
        """Where the last sector ends that is in use."""
        used = len(self._fat)
        while used and self._fat[used - 1] == _FREE:
            used -= 1
        return (used + 1) << self._shift

    def ranges(self, entry: Entry) -> Iterator[tuple[int, int]]:
        """The parts of the file that hold a stream, in its order, each from an offset to another."""
        if entry.size < _CUTOFF:
            sectors: Sequence[int] = self._mini_chain(entry) if entry.size else ()
            offsets, size = [self._mini_offset(sector) for sector in sectors], 1 << _MINI_SHIFT
        else:
            sectors = self._chain(entry.start, self._count(entry.size))
            offsets, size = [self._offset(sector) for sector in sectors], 1 << self._shift
        left = entry.size
        position = 0
        while position < len(offsets):
            first = position
            while position + 1 < len(offsets) and offsets[position + 1] == offsets[position] + size:
                position += 1
            position += 1
            length = min(left, (position - first) * size)
            left -= length
            if offsets[first] + length > self._file_size:
                raise MalformedData("the file is too short for one of its streams")
            yield offsets[first], offsets[first] + length

    def read(self, entry: Entry, limit: int, what: str) -> bytes:
        """A stream of at most `limit` bytes."""
        if entry.size > limit:
            raise MalformedData(f"{what} has {entry.size} bytes, at most {limit} are allowed")
        parts = [read_exactly(self._file, start, end - start, what) for start, end in self.ranges(entry)]
        return b"".join(parts)

    def _offset(self, sector: int) -> int:
        return (sector + 1) << self._shift

    def _count(self, size: int) -> int:
        return -(-size // (1 << self._shift))

    def _mini_offset(self, sector: int) -> int:
        per_sector = self._shift - _MINI_SHIFT
        index = sector >> per_sector
        if index >= len(self._mini_stream):
            raise MalformedData("a short stream lies outside of the place for short streams")
        within = (sector & ((1 << per_sector) - 1)) << _MINI_SHIFT
        return self._offset(self._mini_stream[index]) + within

    def _read_fat(self, header: bytes, fats: int, difat: int, difats: int) -> "array.array[int]":
        places = list(struct.unpack_from(f"<{_IN_HEADER}I", header, 76))
        seen = 0
        while difat < _LAST_SECTOR:
            seen += 1
            if seen > min(difats, self._sectors):
                raise MalformedData("its list of tables is damaged")
            *more, difat = self._read_table([difat])
            places += more
        places = places[:fats]
        if fats > self._sectors or len(places) < fats or any(place >= self._sectors for place in places):
            raise MalformedData("its table of sectors is damaged")
        return self._read_table(places)

    def _read_table(self, sectors: Sequence[int]) -> "array.array[int]":
        table = array.array("I")
        for sector in sectors:
            table.frombytes(read_exactly(self._file, self._offset(sector), 1 << self._shift, "a table of sectors"))
        if sys.byteorder == "big":
            table.byteswap()
        return table

    def _chain(self, first: int, count: int) -> list[int]:
        """The first `count` sectors of a chain."""
        if count > self._sectors:
            raise MalformedData("one of its streams is longer than the file")
        return _follow(self._fat, first, count)

    def _mini_chain(self, entry: Entry) -> list[int]:
        return _follow(self._mini_fat, entry.start, -(-entry.size // (1 << _MINI_SHIFT)))

    def _read_entries(self, first: int) -> list[Entry]:
        entries: list[Entry] = []
        self._links: list[tuple[int, int, int]] = []
        sector, seen = first, 0
        while sector < _LAST_SECTOR:
            seen += 1
            if seen > self._sectors or len(entries) > _MOST_ENTRIES or sector >= len(self._fat):
                raise MalformedData("its directory is damaged")
            data = read_exactly(self._file, self._offset(sector), 1 << self._shift, "the directory")
            for fields in _ENTRY.iter_unpack(data):
                entries.append(self._entry(fields))
                self._links.append(fields[4:7])
            sector = self._fat[sector]
        return entries

    def _entry(self, fields: tuple[bytes, int, int, int, int, int, int, bytes, bytes, bytes, bytes, int, int]) -> Entry:
        name, length, kind, _, _, _, _, class_id, state, created, modified, start, size = fields
        if kind and (length > len(name) or length % 2 or length < 2):
            raise MalformedData("its directory has an entry without a valid name")
        # In files with short sectors, the upper half of the size is not always zero.
        size = size if self._wide_sizes else size & 0xFFFFFFFF
        return Entry(kind, name[: max(0, length - 2)], class_id, state, created, modified, start, size)

    def _with_children(self, index: int, entries: Sequence[Entry], seen: set[int], depth: int) -> Entry:
        """The entry with all that it holds. The siblings are a tree, which is not deep if it is as it should be."""
        children = []
        waiting = [self._links[index][2]]
        while waiting:
            child = waiting.pop()
            if child == _NO_ENTRY:
                continue
            if child >= len(entries) or child in seen or child == 0 or depth == _DEEPEST:
                raise MalformedData("its directory is not a tree")
            seen.add(child)
            left, right, _ = self._links[child]
            waiting += [left, right]
            if entries[child].kind == STORAGE:
                children.append(self._with_children(child, entries, seen, depth + 1))
            elif entries[child].kind == STREAM:
                children.append(entries[child])
            else:
                raise MalformedData("its directory has an entry that is neither a stream nor a storage")
        if len({entry.name for entry in children}) < len(children):
            raise MalformedData("its directory has two entries of the same name")
        return dataclasses.replace(entries[index], children=tuple(sorted(children, key=lambda entry: entry.name)))


def _follow(table: "array.array[int]", first: int, count: int) -> list[int]:
    chain: list[int] = []
    sector = first
    while len(chain) < count:
        # A chain that comes back to itself has no end, but only `count` sectors of it are ever used.
        if sector >= len(table):
            raise MalformedData("one of its streams is shorter than its size")
        chain.append(sector)
        sector = table[sector]
    return chain


_SIGNATURE: Final = "\5DigitalSignature".encode("utf-16-le")
_EXTENDED: Final = "\5MsiDigitalSignatureEx".encode("utf-16-le")
_LONGEST_DIGEST: Final = 64
_CHUNK: Final = 1024 * 1024


class InstallerPackage(Subject):
    """An MSI file. A damaged one is a MalformedData.

    All streams are digested in the order of their names, and after those of a storage its class. If there is a stream
    MsiDigitalSignatureEx, the names, sizes and times are digested too, before them. What lies between the streams is
    not.
    """

    kind = FileKind.MSI
    form = "000c10f1-0000-0000-c000-000000000046"

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._storage = CompoundFile(file)
        self._extended: bytes | None = None

    def read_signature(self) -> None:
        """Read the streams of the signature, if there are any."""
        for entry in self._storage.root.children:
            if entry.kind == STREAM and entry.name == _SIGNATURE:
                self.signature = self._storage.read(entry, LARGEST_SIGNATURE, "the stream of the signature")
            elif entry.kind == STREAM and entry.name == _EXTENDED:
                self._extended = self._storage.read(entry, _LONGEST_DIGEST, "the stream of the extended signature")
        # Nothing reads these bytes as an MSI. Other programs may: https://nvd.nist.gov/vuln/detail/CVE-2020-1464
        surplus = file_size(self.file) - self._storage.end
        if self.signature and surplus > 0:
            raise MalformedData(f"the last sector in use is followed by {counted(surplus, 'byte')}")

    def digest(self, algorithm: str) -> bytes:
        """The Authenticode digest."""
        hasher = hashlib.new(algorithm, usedforsecurity=False)
        if self._extended is not None:
            hasher.update(self._extended_digest(algorithm))
        self._hash_contents(self._storage.root, hasher)
        return hasher.digest()

    def difference(self, signed: SignedDigest) -> str:
        """In what the file differs from the one that was signed. Empty: it is the same."""
        if self._extended is not None and self._extended != self._extended_digest(signed.algorithm):
            return "the file was changed after it was signed: the names, sizes or times of its streams differ"
        return super().difference(signed)

    def _hash_contents(self, storage: Entry, hasher: Any) -> None:  # noqa: ANN401 - hashlib's objects have no public type
        for entry in _signed_children(storage):
            if entry.kind != STREAM:
                self._hash_contents(entry, hasher)
                continue
            for start, end in self._storage.ranges(entry):
                self.file.seek(start)
                for offset in range(start, end, _CHUNK):
                    hasher.update(self.file.read(min(_CHUNK, end - offset)))
        hasher.update(storage.class_id)

    def _extended_digest(self, algorithm: str) -> bytes:
        hasher = hashlib.new(algorithm, usedforsecurity=False)
        _hash_names(self._storage.root, hasher)
        return hasher.digest()


def _hash_names(entry: Entry, hasher: Any) -> None:  # noqa: ANN401 - hashlib's objects have no public type
    if entry.kind != ROOT:
        hasher.update(entry.name)
    hasher.update(entry.size.to_bytes(8, "little")[:4] if entry.kind == STREAM else entry.class_id)
    hasher.update(entry.state)
    if entry.kind != ROOT:
        hasher.update(entry.created + entry.modified)
    for child in _signed_children(entry):
        _hash_names(child, hasher)


def _signed_children(storage: Entry) -> Iterator[Entry]:
    """All but the signature itself."""
    for child in storage.children:
        if storage.kind != ROOT or child.name not in (_SIGNATURE, _EXTENDED):
            yield child
