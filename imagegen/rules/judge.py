"""A config in, every rule that it breaks out. Pure: the day is given, and no lock is needed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.judging import Rule
from imagegen.providers.registry import parts
from imagegen.rules import (
    artifacts,
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

if TYPE_CHECKING:
    from collections.abc import Collection

    from imagegen.errors import Problem
    from imagegen.judging import RuleInput

_MODULES = (versions, support, windows, nodes, places, runtime, network, first_boot, steps, artifacts)


def all_rules() -> tuple[Rule, ...]:
    """The general rules, then those of each provider. Providers may check the same rule, each in its own settings."""
    found: dict[str, Rule] = {}
    for module in (*_MODULES, *parts("rules").values()):
        for rule in vars(module).values():
            if isinstance(rule, Rule):
                known = found.get(rule.id)
                checks = (*known.checks, *rule.checks) if known else rule.checks
                found[rule.id] = dataclasses.replace(known or rule, checks=checks)
    return tuple(found.values())


def broken_rules(given: RuleInput, *, unread: Collection[str] = ()) -> list[Problem]:
    """Every place that breaks a rule; nothing is said of `unread` sections, whose values are not what was written."""
    return [
        dataclasses.replace(
            given.document.problem(finding.path, finding.message, finding.hint), severity=rule.severity, rule=rule.id
        )
        for rule in all_rules()
        for check in rule.checks
        for finding in check(given)
        if not (finding.path and finding.path[0] in unread)
    ]
