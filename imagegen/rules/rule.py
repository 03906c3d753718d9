"""What a rule is: an id, a severity, a sentence that says what must be so, and a function that finds what breaks it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.errors import ERROR, WARNING

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator, Mapping

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document, YamlPath
    from imagegen.settle.spec import Spec
    from imagegen.steps.model import Step

__all__ = ["ERROR", "WARNING", "Asked", "Finding", "Rule", "rule"]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a rule may look at."""

    config: ImageConfig
    document: Document
    today: datetime.date
    steps: Callable[[], Mapping[str, Step]]
    """Asked for only where a rule needs them: reading the steps takes longer than all rules together."""
    specs: Mapping[str, Spec]
    """What holds for each target."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A place of the config that breaks a rule: why it cannot work, and what to choose instead."""

    path: YamlPath
    message: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule; its cases lie in tests/rules/<id>, and examples/<id>.json shows one of them."""

    id: str
    severity: str
    summary: str
    """What must be so, or should be where the rule only warns."""
    check: Callable[[Asked], Iterator[Finding]]
    why: str = ""
    """The reason, where the messages do not say it."""


def rule(
    identifier: str, severity: str, summary: str, *, why: str = ""
) -> Callable[[Callable[[Asked], Iterator[Finding]]], Rule]:
    """The function below it, as a rule."""

    def made(check: Callable[[Asked], Iterator[Finding]]) -> Rule:
        return Rule(identifier, severity, summary, check, why)

    return made
