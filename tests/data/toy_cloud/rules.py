"""What the toy cloud does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rules.rule import ERROR, Finding, TargetRule
from toy_cloud.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.settle.spec import Spec

rule = TargetRule(Settings)


@rule("toy-street", ERROR, "A toy machine must not stand in a dead end")
def toy_street(target: Spec[Settings]) -> Iterator[Finding]:
    """It could not turn round."""
    if target.settings.street == "dead-end":
        yield Finding(("street",), "nothing leads out of a dead end", "write main")
