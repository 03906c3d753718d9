"""The parts of a rule: an id, a severity, a summary of the requirement, and a function that finds violations."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from imagegen.base.errors import ERROR, WARNING

if TYPE_CHECKING:
    from imagegen.config.model import ImageConfig
    from imagegen.config.yaml import Document, YamlPath
    from imagegen.providers.settings import TargetSettings
    from imagegen.settle.spec import Spec
    from imagegen.steps.model import Step

S = TypeVar("S", bound="TargetSettings")

__all__ = ["ERROR", "WARNING", "Finding", "Rule", "RuleInput", "TargetRule", "rule", "simple_rule"]


@dataclasses.dataclass(frozen=True)
class RuleInput:
    """The input of every rule."""

    config: ImageConfig
    document: Document
    today: datetime.date
    steps: Callable[[], Mapping[str, Step]]
    """A function, because reading the steps takes longer than all rules together."""
    specs: Mapping[str, Spec]
    """The settled values by target."""

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers of all targets, without duplicates."""
        return tuple(dict.fromkeys(spec.provider for spec in self.specs.values()))


@dataclasses.dataclass(frozen=True)
class Finding:
    """A violation of a rule: its place in the config, the reason, and what to write instead."""

    path: YamlPath
    message: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule. Its test cases are in tests/rules/<id>.yml, and examples.json has one pair of them."""

    id: str
    severity: str
    summary: str
    """The requirement, or the recommendation where the rule only warns."""
    checks: tuple[Callable[[RuleInput], Iterable[Finding]], ...]
    why: str = ""
    """The reason, where the messages do not give it."""


def rule(
    identifier: str, severity: str, summary: str, why: str = ""
) -> Callable[[Callable[[RuleInput], Iterable[Finding]]], Rule]:
    """A decorator that makes a rule of a function."""
    return lambda check: Rule(identifier, severity, summary, (check,), why)


def simple_rule(
    identifier: str, severity: str, summary: str, is_broken: Callable[[RuleInput], object], finding: Finding
) -> Rule:
    """A rule with one finding, which has no value of the config."""
    return Rule(
        identifier,
        severity,
        summary,
        (lambda given: [finding] if is_broken(given) else [],),
    )


@dataclasses.dataclass(frozen=True)
class TargetRule(Generic[S]):
    """Like `rule`, for a rule that checks each target with such settings."""

    settings: type[S]

    def __call__(
        self, identifier: str, severity: str, summary: str, why: str = ""
    ) -> Callable[[Callable[[Spec[S]], Iterable[Finding]]], Rule]:
        """A decorator that makes a rule of a function, whose findings have paths relative to the target."""

        def make_rule(check: Callable[[Spec[S]], Iterable[Finding]]) -> Rule:
            def check_targets(given: RuleInput) -> Iterator[Finding]:
                for name, spec in given.specs.items():
                    if isinstance(spec.settings, self.settings):
                        for finding in check(cast("Spec[S]", spec)):
                            yield dataclasses.replace(finding, path=("targets", name, *finding.path))

            return Rule(identifier, severity, summary, (check_targets,), why)

        return make_rule

    def simple(
        self, identifier: str, severity: str, summary: str, is_broken: Callable[[S], object], finding: Finding
    ) -> Rule:
        """Like `simple_rule`; the path of the finding is relative to the target."""
        return self(identifier, severity, summary)(lambda spec: [finding] if is_broken(spec.settings) else [])
