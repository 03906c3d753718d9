"""What a rule is: an id, a severity, a sentence that says what it holds, and a function that finds what breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imagegen.errors import ERROR, WARNING

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator, Mapping

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document, YamlPath
    from imagegen.steps.model import Step

__all__ = ["ERROR", "WARNING", "Asked", "Finding", "Rule", "rule"]


class Asked(NamedTuple):
    """What a rule may look at."""

    config: ImageConfig
    document: Document
    today: datetime.date
    steps: Callable[[], Mapping[str, Step]]
    """Asked for only where a rule needs them: reading the steps takes longer than all rules together."""


class Finding(NamedTuple):
    """A place of the config that breaks a rule: why it cannot work, and what to choose instead."""

    path: YamlPath
    message: str
    hint: str


class Rule(NamedTuple):
    """One rule; its cases lie in tests/rules/<id>."""

    id: str
    severity: str
    summary: str
    check: Callable[[Asked], Iterator[Finding]]


def rule(identifier: str, severity: str, summary: str) -> Callable[[Callable[[Asked], Iterator[Finding]]], Rule]:
    """The function below it, as a rule."""

    def made(check: Callable[[Asked], Iterator[Finding]]) -> Rule:
        return Rule(identifier, severity, summary, check)

    return made
