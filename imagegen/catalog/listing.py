"""A table of the catalogue in; lines for people out: its title, its sources, its rows aligned. Pure."""

import textwrap
from collections.abc import Iterable, Iterator

from imagegen.catalog.facts import JsonObject, folders, sources, table

WIDTH = 100
# A longer text stands below the table as a note, so that columns stay narrow.
_LONGEST_CELL = 60
_ABOUT_THE_TABLE = ("title", "source", "sources")


def tables() -> list[str]:
    """The names of all tables."""
    return sorted({file.stem for folder in folders() for file in folder.glob("*.json")})


def describe(name: str, width: int = WIDTH) -> list[str]:
    """One table, at most so many columns wide."""
    data = table(name)
    lines = [*textwrap.wrap(data["title"], width), "", "Sources:"]
    for key, source in sources(name).items():
        lines += _wrapped(f"{source['from']} (read {source['read']})", f"  {key}: ", width)
    for section, content in data.items():
        if section not in _ABOUT_THE_TABLE:
            lines += ["", *_section(section, content, width)]
    return lines


def _section(name: str, content: object, width: int) -> Iterator[str]:
    if isinstance(content, list) and isinstance(content[0], dict):
        yield from _rows(name, {str(number): row for number, row in enumerate(content, 1)}, width)
    elif isinstance(content, dict) and all(isinstance(row, dict) for row in content.values()):
        yield from (_answers if all("note" in row for row in content.values()) else _rows)(name, content, width)
    elif isinstance(content, dict):
        yield from _rows(name, {key: {"": value} for key, value in content.items()}, width)
    else:
        yield from _wrapped(_text(content), f"{name}: ", width)


def _rows(name: str, rows: JsonObject, width: int) -> Iterator[str]:
    """Every row in blocks of columns that fit the width, each block led by the rows' names; then the notes."""
    notes: list[str] = []
    cells = {key: dict(_cells("", row, notes)) for key, row in rows.items()}
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    widths = {column: max(len(column), *(len(row.get(column, "")) for row in cells.values())) for column in columns}
    first = max(len(name), *(len(key) for key in cells))
    for number, block in enumerate(_blocks(columns, widths, width - first)):
        if number:
            yield ""
        yield _line(name.ljust(first), (column.ljust(widths[column]) for column in block))
        for key, row in cells.items():
            yield _line(key.ljust(first), (row.get(column, "").ljust(widths[column]) for column in block))
    for number, note in enumerate(notes, 1):
        yield from _wrapped(note, f"  [{number}] ", width)


def _answers(name: str, rows: JsonObject, width: int) -> Iterator[str]:
    """Rows that say something in words: a name with its key, and below it the note and the names that share it."""
    yield f"{name}:"
    for title, row in rows.items():
        says = row.get("key") or ("no key" if "key" in row else "")
        yield f"  {title}: {says}".rstrip()
        for text in (row["note"], ", ".join(row.get("variables", []))):
            yield from _wrapped(text or "", " " * 6, width)


def _blocks(columns: list[str], widths: dict[str, int], room: int) -> list[list[str]]:
    blocks: list[list[str]] = []
    left = 0
    for column in columns:
        needed = widths[column] + 2
        if not blocks or needed > left:
            blocks.append([])
            left = room
        blocks[-1].append(column)
        left -= needed
    return blocks


def _cells(prefix: str, row: JsonObject, notes: list[str]) -> Iterator[tuple[str, str]]:
    """A row's columns; what lies deeper has a dotted name, and a verdict carries its reason as a note."""
    for key, value in row.items():
        column = f"{prefix}{key}"
        if isinstance(value, dict) and "verdict" in value:
            reason = f" {_noted(value['reason'], notes)}" if value["reason"] else ""
            yield column, f"{value['verdict']}{reason}"
        elif isinstance(value, dict):
            yield from _cells(f"{column}.", value, notes)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield column, " ".join(_noted(_pairs(item), notes) for item in value)
        else:
            text = _text(value)
            yield column, text if len(text) <= _LONGEST_CELL else _noted(text, notes)


def _noted(text: str, notes: list[str]) -> str:
    if text not in notes:
        notes.append(text)
    return f"[{notes.index(text) + 1}]"


def _pairs(item: JsonObject) -> str:
    return "; ".join(f"{key}: {_text(value)}" for key, value in item.items())


def _text(value: object) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(_text(item) for item in value) if isinstance(value, list) else str(value)


def _line(name: str, cells: Iterable[str]) -> str:
    return "  ".join([name, *cells]).rstrip()


def _wrapped(text: str, lead: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_on_hyphens=False,
        break_long_words=False,
    )
