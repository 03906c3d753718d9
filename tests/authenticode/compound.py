"""Makes compound files (OLE structured storage) of any shape: the tests need more than what wixl makes."""

from __future__ import annotations

import dataclasses
import itertools
import struct
import uuid

_FREE, _END, _FAT, _DIFAT, _NONE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFC, 0xFFFFFFFF
_CUTOFF = 4096
_IN_HEADER = 109
Tree = dict[str, "bytes | Tree"]


@dataclasses.dataclass
class _Row:
    name: str
    kind: int
    child: int = _NONE
    right: int = _NONE
    start: int = 0
    size: int = 0
    class_id: bytes = bytes(16)

    def encoded(self) -> bytes:
        name = self.name.encode("utf-16-le")
        head = struct.pack("<64sHBBIII", name, len(name) + 2, self.kind, 1, _NONE, self.right, self.child)
        return head + self.class_id + bytes(20) + struct.pack("<IQ", self.start, self.size)


class Writer:
    """Collects the sectors of one file."""

    def __init__(self, version: int) -> None:
        self.size = {3: 512, 4: 4096}[version]
        self._version = version
        self._sectors: list[bytes] = []
        self._next: list[int] = []
        self._short = b""
        self._short_next: list[int] = []
        self._rows = [_Row("Root Entry", 5, class_id=uuid.UUID(int=1).bytes_le)]

    def write(self, tree: Tree) -> bytes:
        self._rows[0].child = self._add(tree)
        root = self._rows[0]
        root.size = len(self._short)
        root.start = self._chain(self._short) if self._short else _END
        short_table = b"".join(struct.pack("<I", item) for item in self._short_next)
        short_start = self._chain(short_table, padding=b"\xff") if short_table else _END
        rows = b"".join(row.encoded() for row in self._rows)
        empty = struct.pack("<64sHBBIII", b"", 0, 0, 0, _NONE, _NONE, _NONE) + bytes(48)
        rows += empty * (-len(rows) // 128 % (self.size // 128))
        directory = self._chain(rows)
        short_count = -(-len(short_table) // self.size)
        return self._finish(directory, short_start, short_count)

    def _add(self, tree: Tree) -> int:
        """The rows of one storage, as a list to the right. The first one's number."""
        ordered = sorted(tree, key=lambda name: (len(name), name.upper()))
        numbers = []
        for name in ordered:
            content = tree[name]
            number = len(self._rows)
            row = _Row(name, 2 if isinstance(content, bytes) else 1)
            self._rows.append(row)
            numbers.append(number)
            if isinstance(content, bytes):
                row.size = len(content)
                row.start = self._store(content)
            else:
                row.class_id = uuid.UUID(int=len(self._rows)).bytes_le
                row.child = self._add(content)
        for number, following in itertools.pairwise(numbers):
            self._rows[number].right = following
        return numbers[0] if numbers else _NONE

    def _store(self, content: bytes) -> int:
        if not content:
            return _END
        if len(content) >= _CUTOFF:
            return self._chain(content)
        start, count = len(self._short_next), -(-len(content) // 64)
        self._short += content + bytes(count * 64 - len(content))
        self._short_next += [*range(start + 1, start + count), _END]
        return start

    def _chain(self, content: bytes, padding: bytes = b"\0") -> int:
        start, count = len(self._sectors), -(-len(content) // self.size)
        content += padding * (count * self.size - len(content))
        self._sectors += [content[at : at + self.size] for at in range(0, len(content), self.size)]
        self._next += [*range(start + 1, start + count), _END]
        return start

    def _finish(self, directory: int, short_start: int, short_count: int) -> bytes:
        per_sector, used = self.size // 4, len(self._next)
        tables = lists = 0
        # The tables describe themselves and their lists too, and the first of them stand in the header.
        while tables * per_sector < used + tables + lists:
            tables += 1
            lists = -(-max(0, tables - _IN_HEADER) // (per_sector - 1))
        places = [used + number for number in range(tables)]
        entries = [*self._next, *[_FAT] * tables, *[_DIFAT] * lists]
        entries += [_FREE] * (tables * per_sector - len(entries))
        raw = struct.pack(f"<{len(entries)}I", *entries)
        first_list = used + tables
        for number in range(lists):
            held = places[_IN_HEADER + number * (per_sector - 1) :][: per_sector - 1]
            following = first_list + number + 1 if number + 1 < lists else _END
            raw += struct.pack(f"<{per_sector}I", *held, *[_FREE] * (per_sector - 1 - len(held)), following)
        head = struct.pack(
            "<8s16xHHHHH6xIIIIIIIII",
            bytes.fromhex("D0CF11E0A1B11AE1"),
            *(0x3E, self._version, 0xFFFE, self.size.bit_length() - 1, 6),
            *(1 if self._version == 4 else 0, tables, directory, 0, _CUTOFF, short_start, short_count),
            *(first_list if lists else _END, lists),
        )
        in_header = places[:_IN_HEADER]
        head += struct.pack(f"<{_IN_HEADER}I", *in_header, *[_FREE] * (_IN_HEADER - len(in_header)))
        return head + bytes(self.size - len(head)) + b"".join(self._sectors) + raw


def make_compound_file(tree: Tree, version: int = 3) -> bytes:
    """A compound file with these storages and streams."""
    return Writer(version).write(tree)
