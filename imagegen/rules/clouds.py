"""Names that mean something to a cloud or to a process already: regions, and variables of the environment. Pure."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from imagegen.catalog.facts import table
from imagegen.rules.rule import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.documents.yaml import YamlPath
    from imagegen.rules.rule import Asked


@rule("aws-region-known", WARNING, "The catalogue should know the AWS regions")
def aws_region_known(asked: Asked) -> Iterator[Finding]:
    """A warning: AWS opens regions, and imagegen needs to know nothing about one."""
    if aws := asked.config.targets.aws:
        yield from _unknown("aws", "AWS", {("region",): aws.region, **_listed(aws.publish.regions)})


@rule("azure-location-known", WARNING, "The catalogue should know the Azure regions")
def azure_location_known(asked: Asked) -> Iterator[Finding]:
    """A warning, as for AWS. Other Azure clouds are refused by a rule of their own."""
    if azure := asked.config.targets.azure:
        others = tuple(row["prefix"] for row in table("clouds")["azure_clouds"])
        places = {("location",): azure.location, **_listed(azure.publish.regions)}
        own = {path: region for path, region in places.items() if not region.startswith(others)}
        yield from _unknown("azure", "Azure", own)


def _listed(regions: list[str]) -> dict[YamlPath, str]:
    return {("publish", "regions", index): region for index, region in enumerate(regions)}


def _unknown(target: str, title: str, places: dict[YamlPath, str]) -> Iterator[Finding]:
    known = table("regions")[target]
    for path, region in places.items():
        if region not in known:
            close = difflib.get_close_matches(region, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`imagegen catalog regions` lists them"
            message = f"the catalogue knows no {title} region {region}: it is newer than the catalogue, or misspelt"
            yield Finding(("targets", target, *path), message, hint)


@rule("azure-secret-name", ERROR, "client_secret_env must name a variable that holds nothing else")
def azure_secret_name(asked: Asked) -> Iterator[Finding]:
    azure = asked.config.targets.azure
    name = azure.auth.client_secret_env if azure else None
    if name is None:
        return
    row = next((row for row in table("variables")["names"] if re.fullmatch("|".join(row["patterns"]), name)), None)
    if row:
        message = f"{name} does not hold a client secret: {row['means']}"
        path = ("targets", "azure", "auth", "client_secret_env")
        yield Finding(path, message, "name a variable that holds nothing but the secret, as IMAGES_CLIENT_SECRET")
