"""A check of a machine that came up as a node: it judges one thing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot.node import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imagegen.boot.node import Node
    from imagegen.settle.spec import Spec

# How many of many findings a reason names.
_NAMED: Final = 3


def _always(_: Spec) -> bool:
    return True


@dataclasses.dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    passes: str
    """What is so, in a few words."""
    find: Callable[[Node], Iterable[Finding]]
    """The reasons why it is not so."""
    applies: Callable[[Spec], bool] = _always


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of one check: passed if there are no reasons."""

    check: Check
    reasons: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def line(self) -> str:
        return self.check.passes if self.passed else f"{self.check.name}: {'; '.join(self.texts)}"

    @property
    def texts(self) -> list[str]:
        """The reasons, each with its row."""
        return [f"{one.text} ({one.row})" if one.row else one.text for one in self.reasons]


def say(text: str, row: str = "") -> Finding:
    return Finding(text=text, row=row)


def some(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")
