"""What a rule is: an id, a severity, a sentence that says what must be so, and a function that finds what breaks it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from imagegen.errors import ERROR, WARNING

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator, Mapping

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document, YamlPath
    from imagegen.providers.settings import TargetSettings
    from imagegen.settle.spec import Spec
    from imagegen.steps.model import Step

S = TypeVar("S", bound="TargetSettings")

__all__ = ["ERROR", "WARNING", "Finding", "Rule", "RuleInput", "TargetRule", "rule"]


@dataclasses.dataclass(frozen=True)
class RuleInput:
    """What a rule may look at."""

    config: ImageConfig
    document: Document
    today: datetime.date
    steps: Callable[[], Mapping[str, Step]]
    """Called only where a rule needs them: reading the steps takes longer than all rules together."""
    specs: Mapping[str, Spec]
    """What holds for each target."""

    @property
    def providers(self) -> tuple[str, ...]:
        """The clouds that the image is built for, each once."""
        return tuple(dict.fromkeys(spec.provider for spec in self.specs.values()))


@dataclasses.dataclass(frozen=True)
class Finding:
    """A place of the config that breaks a rule: why it cannot work, and what to choose instead."""

    path: YamlPath
    message: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule; its cases lie in tests/rules/<id>, and examples/<id>.json beside its module shows one of them."""

    id: str
    severity: str
    summary: str
    """What must be so, or should be where the rule only warns."""
    checks: tuple[Callable[[RuleInput], Iterator[Finding]], ...]
    module: str
    why: str = ""
    """The reason, where the messages do not say it."""


def rule(
    identifier: str, severity: str, summary: str, why: str = ""
) -> Callable[[Callable[[RuleInput], Iterator[Finding]]], Rule]:
    """The function below it, as a rule."""

    def make_rule(check: Callable[[RuleInput], Iterator[Finding]]) -> Rule:
        return Rule(identifier, severity, summary, (check,), check.__module__, why)

    return make_rule


@dataclasses.dataclass(frozen=True)
class TargetRule(Generic[S]):
    """Like `rule`, for a rule of each target that has such settings."""

    settings: type[S]

    def __call__(
        self, identifier: str, severity: str, summary: str, why: str = ""
    ) -> Callable[[Callable[[Spec[S]], Iterator[Finding]]], Rule]:
        """The function below it, as a rule; its findings' paths begin at the target."""

        def make_rule(check: Callable[[Spec[S]], Iterator[Finding]]) -> Rule:
            def check_targets(given: RuleInput) -> Iterator[Finding]:
                for name, spec in given.specs.items():
                    if isinstance(spec.settings, self.settings):
                        for finding in check(cast("Spec[S]", spec)):
                            yield dataclasses.replace(finding, path=("targets", name, *finding.path))

            return Rule(identifier, severity, summary, (check_targets,), check.__module__, why)

        return make_rule
