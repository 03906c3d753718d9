"""Reads name, version and maker of an MSI package, from its table Property. Reads the file, within bounds.

A damaged table counts as none: it decides nothing. Windows Installer stores a table as a stream, column by column. Its
texts are numbers of a pool.
"""

import struct
from typing import IO, Final

from imagegen.authenticode.compound_file import STREAM, CompoundFile, Entry
from imagegen.authenticode.errors import MalformedData

# As the version resource of a program calls them.
_SHOWN: Final = {"ProductVersion": "ProductVersion", "ProductName": "ProductName", "Manufacturer": "CompanyName"}

_LARGEST: Final = 4 << 20
_LONGEST_TEXT: Final = 200
# The names of streams hold two characters of this alphabet in one of UTF-16, or one.
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
_TABLE, _PAIR, _SINGLE = 0x4840, 0x3800, 0x4800
_LONG_NUMBERS: Final = 1 << 31


def read_properties(file: IO[bytes]) -> dict[str, str]:
    """Version, name and maker, under the names that they have in a version resource. Empty for any other file."""
    try:
        compound = CompoundFile(file)
        streams = {entry.name: entry for entry in compound.root.children if entry.kind == STREAM}
        texts, size = _read_pool(_stream(compound, streams, "_StringPool"), _stream(compound, streams, "_StringData"))
        columns = _stream(compound, streams, "Property")
        numbers = [int.from_bytes(columns[at : at + size], "little") for at in range(0, len(columns), size)]
        names, values = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
        found = {texts[name]: texts[value] for name, value in zip(names, values, strict=True)}
    except (MalformedData, struct.error, IndexError, ValueError):
        return {}
    return {shown: found[name][:_LONGEST_TEXT] for name, shown in _SHOWN.items() if found.get(name)}


def _stream(compound: CompoundFile, streams: dict[bytes, Entry], table: str) -> bytes:
    places = [_ALPHABET.index(letter) for letter in table]
    pairs = [_PAIR + one + (other << 6) for one, other in zip(places[::2], places[1::2], strict=False)]
    single = [_SINGLE + places[-1]] if len(places) % 2 else []
    name = struct.pack(f"<{1 + len(pairs) + len(single)}H", _TABLE, *pairs, *single)
    if name not in streams:
        raise MalformedData(f"it has no table {table}")
    return compound.read(streams[name], _LARGEST, f"the table {table}")


def _read_pool(pool: bytes, data: bytes) -> tuple[list[str], int]:
    """The texts by their numbers, and the size of a number in bytes."""
    texts, position = [""], 0
    pairs = iter([*struct.iter_unpack("<HH", pool[4:])])
    for length, uses in pairs:
        if not length and uses:
            # A long text: this is the upper half of its length, and the next pair has the rest.
            more, _ = next(pairs, (0, 0))
            length = (uses << 16) | more
        texts.append(data[position : position + length].decode("utf-8", "replace"))
        position += length
    return texts, 3 if struct.unpack_from("<I", pool)[0] & _LONG_NUMBERS else 2
