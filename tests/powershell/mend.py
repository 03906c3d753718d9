"""The type of a mend: a fault that a script once had, or a demand of a real program that it meets."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from tests.powershell.reader import Script
from tests.powershell.repository import ROOT, script
from tests.powershell.rules_form import parses

if TYPE_CHECKING:
    from tests.powershell.cases import Rule


# Reviews of a later time have rows that begin with their names.
_ROW: Final = re.compile(r"((find|content|test)-)?[^-]+")


@dataclasses.dataclass(frozen=True)
class Mend:
    """A mend in one script: what must be so, and the edits that each alone undo a part of it."""

    id: str
    path: str
    checks: tuple[Rule, ...]
    undone: tuple[tuple[str, str], ...]

    @property
    def row(self) -> str:
        """The row of docs/faults.md or docs/reality.md."""
        found = _ROW.match(self.id)
        return found[0] if found else self.id


def find_faults(mend: Mend) -> list[str]:
    """What its script lacks of the mend."""
    return [fault for check in mend.checks for fault in check(script(mend.path))]


def find_unseen(mend: Mend) -> list[str]:
    """The undoings that no check sees, and the checks that see no undoing."""
    text = (ROOT / mend.path).read_text("ascii")
    unseen = []
    seen: set[Rule] = set()
    for old, new in mend.undone:
        assert text.count(old) == 1, old
        undone = Script(mend.path, text.replace(old, new).encode("ascii"))
        assert parses(undone) == [], new
        failing = {check for check in mend.checks if check(undone)}
        unseen += [] if failing else [old]
        seen |= failing
    return unseen + [f"check {number}" for number, check in enumerate(mend.checks) if check not in seen]
