"""Checks a config against all rules. Pure: the date is a parameter, and no lock is needed."""

import dataclasses
from collections.abc import Collection

from imagegen.base.errors import Problem
from imagegen.providers.registry import parts
from imagegen.rules import downloads, first_boot, network, nodes, versions
from imagegen.rules.rule import Rule, RuleInput

_MODULES = (versions, nodes, network, first_boot, downloads)


def all_rules() -> tuple[Rule, ...]:
    """The general rules, then those of each provider. Several providers may have checks of the same rule."""
    rules: dict[str, Rule] = {}
    for module in (*_MODULES, *parts("rules").values()):
        for value in vars(module).values():
            for rule in value if isinstance(value, tuple) else (value,):
                if isinstance(rule, Rule):
                    known = rules.get(rule.id)
                    rules[rule.id] = dataclasses.replace(known, checks=(*known.checks, *rule.checks)) if known else rule
    return tuple(rules.values())


def broken_rules(given: RuleInput, *, unread: Collection[str] = ()) -> list[Problem]:
    """Find every place that breaks a rule. `unread` sections are skipped: their values are only defaults."""
    return [
        dataclasses.replace(
            given.document.problem(finding.path, finding.message, finding.hint), severity=rule.severity, rule=rule.id
        )
        for rule in all_rules()
        for check in rule.checks
        for finding in check(given)
        if not (finding.path and finding.path[0] in unread)
    ]
