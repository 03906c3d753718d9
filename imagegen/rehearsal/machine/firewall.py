"""The firewall's rules, by name."""

from __future__ import annotations

import dataclasses

from imagegen.rehearsal.machine.refusal import RefusedByWindows


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule as Windows stores it, with its port as text."""

    name: str
    display_name: str
    direction: str
    action: str
    protocol: str
    port: str
    enabled: bool = True
    profile: str = "Any"


class Firewall:
    """The rules by lower-case name."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}

    def rule(self, name: str) -> Rule | None:
        return self._rules.get(name.lower())

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(self._rules.values())

    def add(self, rule: Rule) -> None:
        if rule.name.lower() in self._rules:
            raise RefusedByWindows(f"a firewall rule {rule.name} exists already")
        self._rules[rule.name.lower()] = rule

    def remove(self, name: str) -> None:
        if self._rules.pop(name.lower(), None) is None:
            raise RefusedByWindows(f"there is no firewall rule {name}")
