"""The rules for nodes on Azure: their names, the network of pods, and settings only for Azure. Pure."""

import re
from collections.abc import Iterator

from imagegen.catalog.facts import is_overlay, limit_of, table
from imagegen.judging import ERROR, WARNING, Finding, RuleInput, rule

_PROVIDER = "azure"


@rule("overlay-mtu-on-azure", ERROR, "The overlay's packets must fit into those of Azure's network")
def overlay_mtu_on_azure(given: RuleInput) -> Iterator[Finding]:
    limit, cni = table("cni")["azure_mtu"], given.config.cni
    if _PROVIDER in given.providers and (cni.mtu or 0) > limit["at_most"] and is_overlay(cni.plugin, cni.mode):
        yield Finding(("cni", "mtu"), limit["reason"], f"choose {limit['at_most']} or less")


@rule("pool-name-scale-set", ERROR, "The pool's name must leave room for the number that Azure appends")
def pool_name_scale_set(given: RuleInput) -> Iterator[Finding]:
    pool, limit = given.config.host_names.pool or "", limit_of("scale_set_prefix")
    if _PROVIDER in given.providers and len(pool) > limit["max"]:
        yield Finding(
            ("host_names", "pool"),
            f"{pool} has {len(pool)} characters: {limit['reason']}",
            f"choose a name of at most {limit['max']}",
        )


@rule("pool-name-aks", WARNING, "The pool's name should be valid in AKS")
def pool_name_aks(given: RuleInput) -> Iterator[Finding]:
    pool, limit = given.config.host_names.pool, limit_of("aks_windows_pool")
    if pool is None or _PROVIDER not in given.providers:
        return
    if len(pool) > limit["max"] or not re.search(limit["pattern"], pool):
        yield Finding(
            ("host_names", "pool"),
            f"{pool} is not a valid name in AKS: {limit['reason']}",
            "choose a valid name if the pool must have the same name in AKS",
        )


@rule("pool-name-on-azure", ERROR, "host_names.pool must be used only for images on Azure")
def pool_name_on_azure(given: RuleInput) -> Iterator[Finding]:
    if given.config.host_names.pool is not None and _PROVIDER not in given.providers:
        yield Finding(
            ("host_names", "pool"),
            "only Azure limits the names of pools, and the image has no Azure target",
            "leave it out",
        )


@rule("gmsa-on-azure", ERROR, "gmsa must be used only for images on Azure")
def gmsa_on_azure(given: RuleInput) -> Iterator[Finding]:
    if given.config.gmsa and _PROVIDER not in given.providers:
        yield Finding(
            ("gmsa",), "the plugin reads a key vault on Azure, and the image has no Azure target", "leave it out"
        )
