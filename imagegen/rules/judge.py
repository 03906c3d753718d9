"""A config in, every rule that it breaks out. Pure: the day is given, and no lock is needed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rules import (
    artifacts,
    aws,
    azure,
    clouds,
    first_boot,
    network,
    nodes,
    places,
    runtime,
    steps,
    support,
    versions,
    windows,
)
from imagegen.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Collection

    from imagegen.errors import Problem
    from imagegen.rules.rule import Asked

_MODULES = (
    versions,
    support,
    windows,
    nodes,
    places,
    runtime,
    network,
    first_boot,
    steps,
    artifacts,
    clouds,
    aws,
    azure,
)

RULES: tuple[Rule, ...] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Rule)
)


def broken_rules(asked: Asked, *, unread: Collection[str] = ()) -> list[Problem]:
    """Every place that breaks a rule; nothing is said of `unread` sections, whose values are not what was written."""
    problems = []
    for rule in RULES:
        for finding in rule.check(asked):
            if finding.path and finding.path[0] in unread:
                continue
            problem = asked.document.problem(finding.path, finding.message, finding.hint)
            problems.append(dataclasses.replace(problem, severity=rule.severity, rule=rule.id))
    return problems
