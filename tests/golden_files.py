"""Golden files: what tests compare with, and `make golden` rewrites."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

UPDATE = "IMAGEGEN_UPDATE_GOLDEN"
_REPOSITORY = Path(__file__).parents[1]
_SHOWN_LINES = 80


def compare_golden(now: Mapping[Path, str | None]) -> None:
    """Fail unless each file holds its text; None means that the file must not exist.

    With IMAGEGEN_UPDATE_GOLDEN set, the files that differ are rewritten and the test fails all the same: a run that
    rewrites what it compares with proves nothing.
    """
    agreed = {path: path.read_bytes().decode() if path.exists() else None for path in now}
    differing = {_name(path): path for path in sorted(now) if agreed[path] != now[path]}
    if not differing:
        return
    if os.environ.get(UPDATE):
        for path in differing.values():
            _rewrite(path, now[path])
        pytest.fail("\n".join(f"rewrote {name}, because {UPDATE} is set" for name in differing), pytrace=False)
    lines = [
        line
        for name, path in differing.items()
        for line in difflib.unified_diff(
            *((agreed[path] or "").splitlines(), (now[path] or "").splitlines()),
            *(f"agreed/{name}", f"now/{name}" if now[path] is not None else "/dev/null"),
            lineterm="",
        )
    ]
    # There are none where only the end of the last line differs, or where an empty file is missing.
    shown = lines[:_SHOWN_LINES] or [f"the end differs: {', '.join(differing)}"]
    pytest.fail("\n".join([*shown, "", "if you meant this change: make golden"]), pytrace=False)


def _name(path: Path) -> str:
    return str(path.relative_to(_REPOSITORY) if path.is_relative_to(_REPOSITORY) else path)


def _rewrite(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
