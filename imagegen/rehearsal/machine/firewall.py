"""The firewall's rules, by name, and what they block."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Collection

ANY = "Any"
# A condition on accounts is a security descriptor: a rule applies to those whom it grants the right to match (CC).
_ENTRY = r"\(([AD]);;CC;;;(S-1-[0-9]+(?:-[0-9]+)+)\)"
_DESCRIPTOR = re.compile(rf"O:LSD:(?:{_ENTRY})+")


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule as Windows stores it, with its ports as text: several are divided by commas."""

    name: str
    display_name: str
    direction: str
    action: str
    protocol: str
    port: str
    enabled: bool = True
    profile: str = ANY
    remote_address: str = ANY
    local_user: str = ANY
    """The accounts to which the rule applies, as a security descriptor."""

    def applies_to(self, sids: Collection[str]) -> bool:
        """Whether it applies to a process with these SIDs. The first entry with one of them decides."""
        if self.local_user == ANY:
            return True
        entries = re.findall(_ENTRY, self.local_user)
        return next((kind == "A" for kind, sid in entries if sid in sids), False)


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
        if rule.local_user != ANY and not _DESCRIPTOR.fullmatch(rule.local_user):
            raise RefusedByWindows(f"firewall rule {rule.name} has an unknown condition: {rule.local_user}")
        self._rules[rule.name.lower()] = rule

    def remove(self, name: str) -> None:
        if self._rules.pop(name.lower(), None) is None:
            raise RefusedByWindows(f"there is no firewall rule {name}")

    def lets_in(self, port: int) -> bool:
        """Whether a rule lets connections to a TCP port in, in every network. Without one, Windows blocks them."""
        return any(
            rule.enabled
            and (rule.direction, rule.action, rule.protocol, rule.profile) == ("in", "allow", "TCP", ANY)
            and str(port) in rule.port.split(",")
            for rule in self.rules
        )

    def blocks(self, sids: Collection[str], address: str, port: int) -> bool:
        """Whether a rule blocks a TCP connection of a process with these SIDs."""
        return any(
            rule.enabled
            and (rule.direction, rule.action, rule.protocol) == ("out", "block", "TCP")
            and rule.remote_address in (ANY, address)
            and (rule.port == ANY or str(port) in rule.port.split(","))
            and rule.applies_to(sids)
            for rule in self.rules
        )
