"""Makes a small package of Windows Installer: it installs no file, and writes values of the registry."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence

from tests.authenticode.compound import Tree, make_compound_file

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
# By this class Windows knows a package; it stands 80 bytes after the name of the root.
_CLASS, _ROOT = uuid.UUID("000c1084-0000-0000-c000-000000000046").bytes_le, "Root Entry".encode("utf-16-le")
_KEY, _TEXT, _LONG_TEXT, _SHORT, _LONG = 0x2000, 0x1D48, 0x1DFF, 0x1502, 0x1104
_LOCAL_MACHINE, _SIXTY_FOUR_BITS_BY_KEY = 2, 260
_ACTIONS = {
    "CostInitialize": 800, "FileCost": 900, "CostFinalize": 1000, "InstallValidate": 1400, "InstallInitialize": 1500,
    "ProcessComponents": 1600, "UnpublishFeatures": 1800, "RemoveRegistryValues": 2600, "WriteRegistryValues": 5000,
    "RegisterUser": 6000, "RegisterProduct": 6100, "PublishFeatures": 6300, "PublishProduct": 6400,
    "InstallFinalize": 6600,
}  # fmt: skip
# The columns of each table, the first of them its key: their names and types.
_TABLES: dict[str, list[tuple[str, int]]] = {
    "Property": [("Property", _TEXT), ("Value", _LONG_TEXT)],
    "Directory": [("Directory", _TEXT), ("Directory_Parent", _TEXT), ("DefaultDir", _LONG_TEXT)],
    "Component": [
        *(("Component", _TEXT), ("ComponentId", _TEXT), ("Directory_", _TEXT), ("Attributes", _SHORT)),
        *(("Condition", _LONG_TEXT), ("KeyPath", _TEXT)),
    ],
    "Feature": [
        *(("Feature", _TEXT), ("Feature_Parent", _TEXT), ("Title", _TEXT), ("Description", _LONG_TEXT)),
        *(("Display", _SHORT), ("Level", _SHORT), ("Directory_", _TEXT), ("Attributes", _SHORT)),
    ],
    "FeatureComponents": [("Feature_", _TEXT), ("Component_", 0x2D48)],
    "Registry": [
        *(("Registry", _TEXT), ("Root", _SHORT), ("Key", _LONG_TEXT), ("Name", _LONG_TEXT)),
        *(("Value", _LONG_TEXT), ("Component_", _TEXT)),
    ],
    "InstallExecuteSequence": [("Action", _TEXT), ("Condition", _LONG_TEXT), ("Sequence", _SHORT)],
}


def make_msi(product: str, version: str, values: Sequence[tuple[str, str, str]]) -> bytes:
    """A package of this product. `values` are keys below HKLM with a name and a text."""
    ids = [f"{{{uuid.uuid5(uuid.NAMESPACE_DNS, f'{product} {part}')}}}".upper() for part in ("product", "component")]
    names = {
        "ProductCode": ids[0],
        "ProductName": product,
        "ProductVersion": version,
        "ProductLanguage": "1033",
        "ALLUSERS": "1",
    }
    rows: dict[str, list[tuple[str | int, ...]]] = {
        "Property": [*names.items(), ("Manufacturer", "imagegen")],
        "Directory": [("TARGETDIR", "", "SourceDir")],
        "Component": [("values", ids[1], "TARGETDIR", _SIXTY_FOUR_BITS_BY_KEY, "", "value0")],
        "Feature": [("all", "", "all", "", 1, 1, "", 0)],
        "FeatureComponents": [("all", "values")],
        "Registry": [(f"value{at}", _LOCAL_MACHINE, *value, "values") for at, value in enumerate(values)],
        "InstallExecuteSequence": [(name, "", number) for name, number in _ACTIONS.items()],
    }
    data = make_compound_file({**_database(rows), "\x05SummaryInformation": _summary(ids[0])})
    at = data.index(_ROOT) + 80
    return data[:at] + _CLASS + data[at + len(_CLASS) :]


def _database(rows: dict[str, list[tuple[str | int, ...]]]) -> Tree:
    """The streams of the tables, and of their texts."""
    described: list[tuple[str | int, ...]] = []
    for table, columns in _TABLES.items():
        for number, (name, kind) in enumerate(columns, 1):
            described.append((table, number, name, (kind | _KEY) & ~0x1000 if number == 1 else kind))
    listed: list[tuple[str | int, ...]] = [(table,) for table in _TABLES]
    system = {"_Columns": described, "_Tables": listed}
    kinds = {
        **{table: [kind for _, kind in columns] for table, columns in _TABLES.items()},
        "_Columns": [_TEXT, _SHORT, _TEXT, _SHORT],
        "_Tables": [_TEXT],
    }
    pool: dict[str, int] = {}
    uses: dict[str, int] = {}
    tree: Tree = {}
    tables: dict[str, list[tuple[str | int, ...]]] = {**system, **rows}
    for table, given in tables.items():
        encoded = []
        for row in given:
            for value in row:
                if isinstance(value, str) and value:
                    pool.setdefault(value, len(pool) + 1)
                    uses[value] = uses.get(value, 0) + 1
            encoded.append([pool.get(one, 0) if isinstance(one, str) else one + 0x8000 for one in row])
        # Windows looks for a row by its key, as these numbers are ordered.
        columns_first = zip(*sorted(encoded), strict=True)
        assert all(len(kinds[table]) == len(row) for row in given), table
        tree[_stream_name(table)] = b"".join(struct.pack(f"<{len(column)}H", *column) for column in columns_first)
    tree[_stream_name("_StringPool")] = struct.pack("<HH", 1252, 0) + b"".join(
        struct.pack("<HH", len(text), uses[text]) for text in pool
    )
    tree[_stream_name("_StringData")] = "".join(pool).encode("ascii")
    return tree


def _stream_name(table: str) -> str:
    """The name of a table's stream: two characters of the alphabet in one, after the mark of a table."""
    numbers = [_ALPHABET.index(letter) for letter in table]
    pairs = [chr(0x3800 + first + (second << 6)) for first, second in zip(numbers[::2], numbers[1::2], strict=False)]
    return chr(0x4840) + "".join(pairs) + (chr(0x4800 + numbers[-1]) if len(numbers) % 2 else "")


def _summary(code: str) -> bytes:
    """The properties that Windows Installer demands: template, package code, schema, and the kind of source."""
    texts = {7: "x64;1033", 9: code}
    numbers = {1: (2, 1252), 14: (3, 200), 15: (3, 2)}
    values = {number: struct.pack("<II", *value) for number, value in numbers.items()}
    for number, text in texts.items():
        raw = text.encode("ascii") + b"\0"
        values[number] = struct.pack("<II", 30, len(raw)) + raw + bytes(-len(raw) % 4)
    place, listed, body = 8 + 8 * len(values), b"", b""
    for number, value in sorted(values.items()):
        listed += struct.pack("<II", number, place + len(body))
        body += value
    section = struct.pack("<II", place + len(body), len(values)) + listed + body
    summary = uuid.UUID("f29f85e0-4ff9-1068-ab91-08002b27b3d9").bytes_le
    return struct.pack("<HHI16sI16sI", 0xFFFE, 0, 2, bytes(16), 1, summary, 48) + section
