"""Finds the folders of a plan that others than SYSTEM and Administrators can change. Pure.

A new folder inherits the rights of the folder above it. On the cloud's base images every account can change what is
made at the top of drive C, and make files in C:\\ProgramData. So each folder of a plan must lie in a closed one, have
an acl of its own, or say why it is open.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import WARNING, Problem
from imagegen.catalog.facts import table
from imagegen.steps.accounts import TRUSTED

if TYPE_CHECKING:
    from imagegen.steps.evaluate import Draft, EvaluatedStep

_CLOSE: Final = (
    r"make it below C:\Program Files, or add acl: {path: ..., entries: [{sid: S-1-5-18, rights: full}, "
    "{sid: S-1-5-32-544, rights: full}]}, or give the directory `open: REASON`"
)
# directory and acl make folders and close them. command and script run while the image is built: nobody else is on the
# machine then.
_USES_NO_FOLDER: Final = frozenset({"directory", "acl", "command", "script"})
Placed = tuple["EvaluatedStep", "Draft"]


@dataclasses.dataclass(frozen=True)
class _Folders:
    """The folders that a plan makes, and what it says about their rights, by their paths in lower case."""

    made: Mapping[str, tuple[str, Placed]]
    """Each with its path as it is written, and the resource that makes it."""
    closed: Mapping[str, bool]
    """Those with an acl: whether only SYSTEM and Administrators can change them."""
    reasons: Mapping[str, str]
    """Why they are open."""

    def is_stated(self, folder: str) -> bool:
        """Whether the folder, or one above it, has an acl or says why it is open."""
        return any(one in self.closed or one in self.reasons for one in list_chain(folder))

    def is_closed(self, folder: str) -> bool:
        """Whether others can neither change the folder nor replace one above it."""
        chain = list_chain(folder)
        nearest = next((one for one in chain if one in self.closed or one in self.reasons), None)
        return not chain or (self.closed.get(nearest or "", False) and all(map(self.is_closed, chain[1:2])))


def find_open_folders(steps: Iterable[EvaluatedStep]) -> Iterator[Problem]:
    """An error for each folder whose rights the plan does not state, and for each open one that SYSTEM uses; a warning
    for each other one that is open on purpose."""
    placed = [(step, draft) for step in steps for draft in step.drafts]
    folders = _read_folders(placed)
    for folder, (path, maker) in folders.made.items():
        # Only the outermost: its acl closes the folders in it too.
        if not folders.is_stated(folder) and len(list_chain(folder)) == 1:
            yield _problem(maker, f"{path} inherits its rights, so every account of the node could change it", _CLOSE)
    uses = _find_uses(placed, folders)
    yield from uses.values()
    for item in placed:
        _, draft = item
        path, reason = str(draft.fields.get("path")), draft.fields.get("open")
        if draft.kind != "directory" or reason is None:
            continue
        if folders.closed.get(path.lower(), _lies_in_closed(path, folders)):
            yield _problem(item, f"{path} is not open: it, or a folder above it, is closed", "remove `open`")
        elif path.lower() not in uses:
            message = f"{path} is open, so every account of the node can change what is in it ({reason})"
            problem = _problem(item, message, "close it with an acl, if only SYSTEM and administrators need it")
            yield dataclasses.replace(problem, severity=WARNING)


def list_chain(folder: str) -> list[str]:
    """The folder and those above it up to one of Windows, in lower case. Empty in the folders that Windows closes."""
    layout, lower = table("layout"), PureWindowsPath(folder.lower())
    chain = [str(one) for one in (lower, *lower.parents)][:-1]
    if {own.lower() for own in layout["closed_by_windows"]} & set(chain):
        return []
    windows = {own.lower() for own in layout["system_folders"]}
    return [one for one in chain if one not in windows]


def _read_folders(placed: Iterable[Placed]) -> _Folders:
    made: dict[str, tuple[str, Placed]] = {}
    closed: dict[str, bool] = {}
    reasons: dict[str, str] = {}
    for item in placed:
        _, draft = item
        path = str(draft.fields.get("path"))
        if draft.kind == "acl":
            closed[path.lower()] = all(map(_is_harmless, draft.fields.get("entries") or ()))
        elif draft.kind == "directory" and draft.fields.get("open") is not None:
            reasons[path.lower()] = str(draft.fields["open"])
        for folder in _made_by(draft):
            for lower in list_chain(folder):
                made.setdefault(lower, (folder[: len(lower)], item))
    return _Folders(made, closed, reasons)


def _made_by(draft: Draft) -> Iterator[str]:
    """The folders that a resource makes, without those above them. Other kinds need a folder that exists."""
    if draft.kind == "directory":
        yield str(draft.fields.get("path"))
    elif draft.kind == "package":
        yield from (str(PureWindowsPath(str(path)).parent) for path in draft.fields.get("files") or ())


def _is_harmless(entry: object) -> bool:
    # A value of another type is reported with the resource.
    return isinstance(entry, dict) and (entry.get("sid") in TRUSTED or entry.get("rights") == "read")


def _lies_in_closed(path: str, folders: _Folders) -> bool:
    chain = list_chain(path)
    return not chain or any(map(folders.is_closed, chain[1:2]))


def _find_uses(placed: Iterable[Placed], folders: _Folders) -> dict[str, Problem]:
    """The first thing in each open folder that SYSTEM runs or reads."""
    opened = [one for one in folders.made if folders.is_stated(list_chain(one)[-1]) and not folders.is_closed(one)]
    found: dict[str, Problem] = {}
    for item in placed:
        _, draft = item
        names = [one for one in opened if draft.kind not in _USES_NO_FOLDER and _names(draft.fields, one)]
        if names:
            innermost = max(names, key=len)
            path = folders.made[innermost][0]
            message = f"this {draft.kind} uses {path}, which every account of the node can change or replace"
            hint = "move it to a closed folder: SYSTEM must not run or read what others can replace"
            found.setdefault(innermost, _problem(item, message, hint))
    return found


def _names(value: object, folder: str) -> bool:
    """Whether a text in the value names the folder, or something in it."""
    if isinstance(value, dict | list):
        return any(_names(inner, folder) for inner in (value.values() if isinstance(value, dict) else value))
    named = rf"(?<!\w){re.escape(folder)}(?![^\\\"'\s,;)])"
    return isinstance(value, str) and re.search(named, value.lower().replace("/", "\\")) is not None


def _problem(item: Placed, message: str, hint: str) -> Problem:
    step, draft = item
    return step.step.resources.problem(draft.path, message, hint)
