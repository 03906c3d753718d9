"""The folders that a step closes because others than administrators could change them or what is in them."""

from __future__ import annotations

import ntpath
from typing import TYPE_CHECKING

from imagegen.catalog.facts import table
from imagegen.settle.values import CatalogueValue, fact, find_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imagegen.config.model import ImageConfig


def settle_folders(config: ImageConfig) -> Iterator[CatalogueValue]:
    layout = table("layout")
    install_path, top = config.kubernetes.install_path, tuple(layout["closed_folders"])
    closed = (*top, *_folders_above([install_path], (*top, *layout["closed_by_windows"])))
    origin = find_origin("layout", "closed_folders", layout["source"]["closed_folders"])
    yield fact("closed_folders", closed, origin)
    programs = [program.path for program in config.executables]
    others = _folders_above(programs, (*closed, install_path, *layout["closed_by_windows"]))
    yield fact("program_folders", others, origin)


def _folders_above(paths: Iterable[str], closed: Iterable[str]) -> tuple[str, ...]:
    """The folders above these paths that are neither closed nor Windows' own, outermost first, each once."""
    whole = [folder.lower() for folder in closed]
    found: dict[str, str] = {}
    for path in paths:
        above = ntpath.dirname(path)
        chain = []
        while above != ntpath.dirname(above):
            chain.append(above)
            above = ntpath.dirname(above)
        for folder in reversed(chain):
            if not any(f"{folder.lower()}\\".startswith(f"{one}\\") for one in whole) and not _is_windows_own(folder):
                found.setdefault(folder.lower(), folder)
    return tuple(found.values())


def _is_windows_own(folder: str) -> bool:
    return folder.lower() in {one.lower() for one in table("layout")["system_folders"]}
