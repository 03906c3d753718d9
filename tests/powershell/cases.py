"""What a case of a rule is: a few lines of PowerShell, and what the rule must say of them, or that it says nothing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tests.powershell.reader import Script

if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[Script], list[str]]

MODULE = "packer/guest/some.psm1"


@dataclasses.dataclass(frozen=True)
class Good:
    rule: Rule
    code: str | bytes
    path: str = MODULE


@dataclasses.dataclass(frozen=True)
class Bad:
    """Code of which the rule says one thing: a message that holds this text, about this line."""

    rule: Rule
    code: str | bytes
    message: str
    line: int = 1
    path: str = MODULE


def script_of(case: Good | Bad) -> Script:
    data = case.code if isinstance(case.code, bytes) else case.code.encode()
    return Script(case.path, data)
