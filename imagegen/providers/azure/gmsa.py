"""The rules about the plugin of gMSAs, which only Azure has. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from imagegen.catalog.facts import numbers, table
from imagegen.rules import rule as judging
from imagegen.rules.rule import ERROR, Finding, RuleInput, simple_rule

gmsa_on_azure = simple_rule(
    "gmsa-on-azure",
    ERROR,
    "gmsa must be used only for images on Azure",
    lambda given: given.config.gmsa and "azure" not in given.providers,
    Finding(("gmsa",), "the plugin reads a key vault on Azure, and the image has no Azure target", "leave it out"),
)


@judging.rule("gmsa-known", ERROR, "gmsa.version must have the source of the plugin's events")
def gmsa_known(given: RuleInput) -> Iterator[Finding]:
    version, row = given.config.gmsa and given.config.gmsa.version, table("machines")["gmsa_plugin"]["azure"]
    if version and numbers(version) < numbers(row["first"]):
        yield Finding(
            ("gmsa", "version"),
            f"the archive of {version} has no CCGAKVPluginEvents.man, which came with {row['first']}",
            f"choose {row['first']} or later, or leave the version out for {row['newest']}",
        )
