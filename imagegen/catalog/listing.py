"""Formats a table of the catalogue as text: its title, its sources and its rows. Pure."""

import textwrap
from collections.abc import Iterator

from imagegen.catalog.facts import JsonObject, folders, sources, table

WIDTH = 100
# A longer text becomes a note below the table, so that columns are narrow.
_LONGEST_CELL = 60


def tables() -> list[str]:
    """The names of all tables."""
    return sorted({file.stem for folder in folders() for file in folder.glob("*.json")})


def describe(name: str, width: int = WIDTH) -> list[str]:
    """The lines of one table, with at most `width` characters each."""
    data = table(name)
    lines = [*textwrap.wrap(data["title"], width), "", "Sources:"]
    for key, source in sources(name).items():
        lines += _wrapped(f"{source['from']} (read {source['read']})", f"  {key}: ", width)
    for section, content in data.items():
        if section not in ("title", "source", "sources"):
            lines += ["", *_section(section, content, width)]
    return lines


def _section(name: str, content: object, width: int) -> Iterator[str]:
    if isinstance(content, list) and isinstance(content[0], dict):
        yield from _rows(name, {str(number): row for number, row in enumerate(content, 1)}, width)
    elif isinstance(content, dict) and all(isinstance(row, dict) for row in content.values()):
        yield from (_notes if all("note" in row for row in content.values()) else _rows)(name, content, width)
    elif isinstance(content, dict):
        yield from _rows(name, {key: {"": value} for key, value in content.items()}, width)
    else:
        yield from _wrapped(_text(content), f"{name}: ", width)


def _rows(name: str, rows: JsonObject, width: int) -> Iterator[str]:
    """All rows, in blocks of columns that fit the width. Each block begins with the names of the rows."""
    notes: list[str] = []
    cells = [(key, dict(_cells("", row, notes))) for key, row in rows.items()]
    columns = list(dict.fromkeys(column for _, row in cells for column in row))
    lines = [(name, {column: column for column in columns}), *cells]
    widths = {column: max(len(row.get(column, "")) for _, row in lines) for column in columns}
    first = max(len(key) for key, _ in lines)
    for number, block in enumerate(_blocks(columns, widths, width - first)):
        yield from [""] if number else []
        for key, row in lines:
            yield "  ".join(
                [key.ljust(first), *(row.get(column, "").ljust(widths[column]) for column in block)]
            ).rstrip()
    for number, note in enumerate(notes, 1):
        yield from _wrapped(note, f"  [{number}] ", width)


def _notes(name: str, rows: JsonObject, width: int) -> Iterator[str]:
    """Rows with notes: each row's name and key, and below them its note and the variables that share it."""
    yield f"{name}:"
    for title, row in rows.items():
        key = row.get("key") or ("no key" if "key" in row else "")
        yield f"  {title}: {key}".rstrip()
        for text in (row["note"], ", ".join(row.get("variables", []))):
            yield from _wrapped(text or "", " " * 6, width)


def _blocks(columns: list[str], widths: dict[str, int], room: int) -> list[list[str]]:
    blocks: list[list[str]] = []
    left = 0
    for column in columns:
        if not blocks or widths[column] + 2 > left:
            blocks.append([])
            left = room
        blocks[-1].append(column)
        left -= widths[column] + 2
    return blocks


def _cells(prefix: str, row: JsonObject, notes: list[str]) -> Iterator[tuple[str, str]]:
    """The columns of a row. Keys of nested maps are joined with dots. The reason of a verdict becomes a note."""
    for key, value in row.items():
        column = f"{prefix}{key}"
        if isinstance(value, dict) and "verdict" in value:
            reason = f" {_noted(value['reason'], notes)}" if value["reason"] else ""
            yield column, f"{value['verdict']}{reason}"
        elif isinstance(value, dict):
            yield from _cells(f"{column}.", value, notes)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            pairs = ("; ".join(f"{inner}: {_text(part)}" for inner, part in item.items()) for item in value)
            yield column, " ".join(_noted(text, notes) for text in pairs)
        else:
            text = _text(value)
            yield column, text if len(text) <= _LONGEST_CELL else _noted(text, notes)


def _noted(text: str, notes: list[str]) -> str:
    """The number of a note, which is added if it is new."""
    if text not in notes:
        notes.append(text)
    return f"[{notes.index(text) + 1}]"


def _text(value: object) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(_text(item) for item in value) if isinstance(value, list) else str(value)


def _wrapped(text: str, lead: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_on_hyphens=False,
        break_long_words=False,
    )
