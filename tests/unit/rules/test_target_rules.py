"""Rules of targets: each target of the provider is judged, under its own name, and no other."""

from __future__ import annotations

import datetime
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from imagegen.config.yaml import parse_yaml
from imagegen.providers.aws.settings import Settings as AwsSettings
from imagegen.providers.azure.settings import Settings as AzureSettings
from imagegen.rules import judge
from imagegen.rules.rule import ERROR, Finding, RuleInput, TargetRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.settle.spec import Spec

GALLERY = {"resource_group": "a", "name": "b", "definition": "c"}
TEXT = """\
targets:
  prod: {region: eu-west-1}
  test: {region: eu-west-2}
  azure: {location: westeurope}
"""


def targets() -> RuleInput:
    """Two accounts of one cloud, and another cloud."""
    settings: dict[str, Any] = {
        "prod": AwsSettings(region="eu-west-1"),
        "test": AwsSettings(region="eu-west-2"),
        "azure": AzureSettings.model_validate({"location": "westeurope", "gallery": GALLERY}),
    }
    specs = {name: SimpleNamespace(settings=value) for name, value in settings.items()}
    document = parse_yaml(TEXT.encode(), "config.yaml")
    return RuleInput(cast("Any", None), document, datetime.date(2026, 11, 18), dict, cast("Any", specs))


@TargetRule(AwsSettings)("wrong-region", ERROR, "The region must be another")
def wrong_region(target: Spec[AwsSettings]) -> Iterator[Finding]:
    yield Finding(("region",), f"{target.settings.region} is wrong", "choose another")


@TargetRule(AzureSettings)("wrong-region", ERROR, "The region must be another")
def wrong_location(target: Spec[AzureSettings]) -> Iterator[Finding]:
    yield Finding(("location",), f"{target.settings.location} is wrong", "choose another")


@pytest.fixture
def _one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule, as two providers check it."""
    modules = [ModuleType("one"), ModuleType("other")]
    modules[0].wrong_region, modules[1].wrong_location = wrong_region, wrong_location  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setattr(judge, "_MODULES", ())
    monkeypatch.setattr(judge, "parts", lambda _: dict(enumerate(modules)))


@pytest.mark.usefixtures("_one_rule")
def test_each_target_is_judged_under_its_own_name() -> None:
    assert [str(problem) for problem in judge.broken_rules(targets())] == [
        "config.yaml:2: targets.prod.region: eu-west-1 is wrong [wrong-region]\n  hint: choose another",
        "config.yaml:3: targets.test.region: eu-west-2 is wrong [wrong-region]\n  hint: choose another",
        "config.yaml:4: targets.azure.location: westeurope is wrong [wrong-region]\n  hint: choose another",
    ]


@pytest.mark.usefixtures("_one_rule")
def test_a_rule_of_several_providers_is_one_rule() -> None:
    (rule,) = judge.all_rules()
    assert (rule.id, len(rule.checks)) == ("wrong-region", 2)
