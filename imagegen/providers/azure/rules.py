"""The rules for Azure targets and their nodes: settings that Azure rejects, or that would have no effect. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import JsonObject, is_overlay, limit_of, numbers, table
from imagegen.providers.azure.disks import azure_size_premium as azure_size_premium
from imagegen.providers.azure.settings import Settings
from imagegen.providers.azure.tags import OWN_TAGS
from imagegen.providers.shared_rules import (
    BASE_IMAGE_RELEASE,
    BUILD_REGION_PUBLISHED,
    DISK_HOLDS_BASE_IMAGE,
    HYPER_V_SIZE,
    REGION_KNOWN,
    TAG_COUNT,
    TAG_NAME,
    WINDOWS_OFFERED,
    WINRM_OPEN_TO_EVERYBODY,
    find_build_region,
    find_open_networks,
    find_other_windows,
    find_small_disk,
    find_too_many_tags,
    find_unknown_regions,
    offered_image,
    publish_regions,
)
from imagegen.providers.tags import COMPONENT_TAGS, OPTION_TAGS
from imagegen.rules import rule as judging
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, TargetRule, simple_rule

if TYPE_CHECKING:
    from imagegen.config.yaml import YamlPath
    from imagegen.settle.spec import Spec

    Target = Spec[Settings]

_TAGS_WRITTEN: Final = OWN_TAGS | COMPONENT_TAGS
# https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources#limitations
_AZURES_OWN: Final = ("azure", "microsoft", "windows")

rule = TargetRule(Settings)


@judging.rule("overlay-mtu-on-azure", ERROR, "The overlay's packets must fit into those of Azure's network")
def overlay_mtu_on_azure(given: RuleInput) -> Iterator[Finding]:
    limit, cni = table("cni")["azure_mtu"], given.config.cni
    if "azure" in given.providers and (cni.mtu or 0) > limit["at_most"] and is_overlay(cni.plugin, cni.mode):
        yield Finding(("cni", "mtu"), limit["reason"], f"choose {limit['at_most']} or less")


@judging.rule("pool-name-aks", WARNING, "The pool's name should be valid in AKS")
def pool_name_aks(given: RuleInput) -> Iterator[Finding]:
    pool, limit = given.config.host_names.pool, limit_of("aks_windows_pool")
    is_valid = pool is None or (len(pool) <= limit["max"] and re.search(limit["pattern"], pool))
    if "azure" in given.providers and not is_valid:
        yield Finding(
            ("host_names", "pool"),
            f"{pool} is not a valid name in AKS: {limit['reason']}",
            "choose a valid name if the pool must have the same name in AKS",
        )


pool_name_on_azure = simple_rule(
    "pool-name-on-azure",
    ERROR,
    "host_names.pool must be used only for images on Azure",
    lambda given: given.config.host_names.pool is not None and "azure" not in given.providers,
    Finding(
        ("host_names", "pool"),
        "only Azure limits the names of pools, and the image has no Azure target",
        "leave it out",
    ),
)


@judging.rule("pool-name-scale-set", ERROR, "The pool's name must leave room for the number that Azure appends")
def pool_name_scale_set(given: RuleInput) -> Iterator[Finding]:
    pool, limit = given.config.host_names.pool or "", limit_of("scale_set_prefix")
    if "azure" in given.providers and len(pool) > limit["max"]:
        yield Finding(
            ("host_names", "pool"),
            f"{pool} has {len(pool)} characters: {limit['reason']}",
            f"choose a name of at most {limit['max']}",
        )


build_region_published = rule(*BUILD_REGION_PUBLISHED)(
    lambda target: find_build_region(target.settings.publish.regions, target.settings.location)
)


@rule("azure-public-cloud", ERROR, "Locations must be in Azure's public cloud")
def azure_public_cloud(target: Target) -> Iterator[Finding]:
    for path, location in _locations(target.settings).items():
        if row := next((row for row in table("clouds")["azure_clouds"] if location.startswith(row["prefix"])), None):
            yield Finding(
                path,
                f"{location} is in another Azure cloud ({row['cloud']}), which imagegen does not support yet",
                "choose a location of the public cloud, for example eastus2",
            )


def _locations(settings: Settings) -> dict[YamlPath, str]:
    """The build region and the regions of `publish.regions` by their paths in the target."""
    return {("location",): settings.location, **publish_regions(settings.publish.regions)}


@rule(*WINRM_OPEN_TO_EVERYBODY)
def azure_open_to_everybody(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    if not network.virtual_network and not network.allowed_cidrs:
        yield Finding(
            ("network",),
            "the temporary network opens the builder's WinRM port to the whole internet while it runs",
            "write the networks where Packer runs to allowed_cidrs",
        )
    yield from find_open_networks(network.allowed_cidrs)


@rule("gallery-version", ERROR, "A gallery version must be three numbers")
def gallery_version(target: Target) -> Iterator[Finding]:
    azure, limit = target.settings, limit_of("gallery_version")
    path, version, kubernetes = ("gallery", "version"), azure.gallery.version, target.config.kubernetes.version
    whole = kubernetes if version == "kubernetes" else version
    # The length first: Python raises an error for an integer with thousands of digits.
    fits = re.search(limit["pattern"], whole) and all(
        len(part) <= len(str(limit["max"])) and int(part) <= limit["max"] for part in whole.split(".")
    )
    if version == "kubernetes" and "-" in kubernetes:
        yield Finding(
            path, f"a gallery version has three numbers, and {kubernetes} is a pre-release", "write version: date"
        )
    elif version != "date" and not fits:
        yield Finding(
            path,
            f"{whole} is not a valid gallery version: {limit['reason']}",
            "write date, kubernetes, or three numbers, for example 1.0.0",
        )


@rule("azure-size-generation", ERROR, "The builder's sizes must support the machine generation")
def azure_size_generation(target: Target) -> Iterator[Finding]:
    azure = target.settings
    for index, size in enumerate(azure.vm_sizes):
        row = _size(size)
        if row and azure.generation not in row["generations"]:
            supported = " and ".join(str(number) for number in row["generations"]) or "none on which Windows runs"
            yield Finding(
                ("vm_sizes", index),
                f"{size} does not support generation {azure.generation} (it supports {supported}; {row['note']})",
                "choose another size" if not row["generations"] else f"choose another size, or generation {supported}",
            )


@rule("azure-size-security", ERROR, "The builder's sizes must support the security type")
def azure_size_security(target: Target) -> Iterator[Finding]:
    azure = target.settings
    for index, size in enumerate(azure.vm_sizes):
        row = _size(size)
        if row and row["security"] and azure.security_type.lower() not in [kind.lower() for kind in row["security"]]:
            kinds = " or ".join(kind[:1].upper() + kind[1:] for kind in row["security"])
            yield Finding(
                ("vm_sizes", index),
                f"{size} does not support the security type {azure.security_type} ({row['note']})",
                f"choose another size, or security_type: {kinds}",
            )


def _size(size: str) -> JsonObject | None:
    """The first row that matches; None for a size that is not in the catalogue."""
    rows: list[JsonObject] = table("azure-sizes")["sizes"]
    return next((row for row in rows if re.fullmatch(row["pattern"], size.lower())), None)


azure_key_of_build_region = rule.simple(
    "azure-key-of-build-region",
    WARNING,
    "An image with disk_encryption_set should stay in the build region",
    lambda azure: azure.disk_encryption_set and azure.publish.regions,
    Finding(
        ("disk_encryption_set",),
        "a disk encryption set is in one region: Azure encrypts replicas in other regions with its own key",
        "leave publish.regions out where that is not allowed",
    ),
)


@rule(*TAG_NAME)
def azure_tag_name(target: Target) -> Iterator[Finding]:
    own, seen = {name.lower() for name in _TAGS_WRITTEN | OPTION_TAGS}, set[str]()
    for name in target.settings.tags:
        path, plain = ("tags", name), name.lower()
        if plain.startswith(_AZURES_OWN):
            yield Finding(path, f"Azure reserves names that begin with {', '.join(_AZURES_OWN)}", "choose another name")
        elif plain.startswith("imagegen") or plain in own:
            yield Finding(path, "imagegen overwrites this tag with its own", "choose another name")
        elif plain in seen:
            yield Finding(
                path, "the same name is above: Azure ignores upper and lower case in names of tags", "leave one out"
            )
        seen.add(plain)


azure_tag_count = rule(*TAG_COUNT)(lambda target: find_too_many_tags(target.settings.tags, "azure_tags", _TAGS_WRITTEN))


@rule(*REGION_KNOWN)
def azure_location_known(target: Target) -> Iterator[Finding]:
    """The rule azure-public-cloud rejects the regions of other Azure clouds."""
    other_clouds = tuple(row["prefix"] for row in table("clouds")["azure_clouds"])
    return find_unknown_regions(
        "azure",
        "Azure",
        {path: region for path, region in _locations(target.settings).items() if not region.startswith(other_clouds)},
    )


@rule(*WINDOWS_OFFERED)
def windows_offered(target: Target) -> Iterator[Finding]:
    """A base image of the operator's own is always allowed."""
    azure, image = target.settings, offered_image(target)
    if image and image["sku"][str(azure.generation)] is None and not azure.base_image:
        yield Finding(("generation",), image["reason"], "choose the other generation, or set base_image")


disk_holds_base_image = rule(*DISK_HOLDS_BASE_IMAGE)(
    lambda target: find_small_disk(
        target, ("disk_size_gb",), None if target.settings.base_image else target.settings.disk_size_gb
    )
)


@rule(*BASE_IMAGE_RELEASE)
def base_image_release(target: Target) -> Iterator[Finding]:
    if image := target.settings.base_image:
        yield from find_other_windows(
            target, f"{image.publisher}/{image.offer}/{image.sku}", target.settings.generation
        )


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


@rule(*HYPER_V_SIZE)
def hyper_v_size(target: Target) -> Iterator[Finding]:
    """A size that is not in the catalogue may be one that can."""
    if target.config.windows.hyper_v != "isolation":
        return
    rows = table("nesting")["cannot"]["azure"]
    for index, size in enumerate(target.settings.vm_sizes):
        if row := next((row for row in rows if re.fullmatch(row["pattern"], size.lower())), None):
            yield Finding(
                ("vm_sizes", index),
                f"{size} ({row['note']}) does not let Windows start a hypervisor, which Hyper-V isolation needs",
                "choose another size, for example Standard_D4s_v5, or write hyper_v: tools",
            )


# A local group of Windows has no other local group as a member, and what is not of this machine has no local account.
_NOT_ACCOUNTS: Final = frozenset(
    {
        *("administrators", "guests", "users", "remote desktop users", "remote management users", "everyone"),
        *("system", "localsystem", "local service", "localservice", "network service", "networkservice"),
    }
)
# First boot disables the first one, which is the build's, and Windows the others.
_DISABLED: Final = frozenset({"administrator", "guest", "defaultaccount", "wdagutilityaccount"})


@rule("azure-wire-server-users", ERROR, "wire_server_users must be accounts that a node can have")
def azure_wire_server_users(target: Target) -> Iterator[Finding]:
    machines, users = table("machines"), target.settings.wire_server_users
    group = machines["restricted_address"]["azure"]["group"].lower()
    disabled = _DISABLED | {machines["access"]["azure"]["build_account"]}
    for index, name in enumerate(users):
        path, plain = ("wire_server_users", index), name.lower()
        if plain in _NOT_ACCOUNTS or plain == group:
            yield Finding(
                path, f"{name} is not a local account", "name the accounts; SYSTEM has access without an entry"
            )
        elif plain in disabled:
            yield Finding(path, f"a node has no {name}, or has it disabled", "leave it out, or name another account")
        elif plain == table("cloudbase-init")["service_account"]:
            yield Finding(path, f"{name} has access without an entry", "leave it out")
        # The rule listed-twice reports a name that is written in the same way.
        elif name not in users[:index] and plain in map(str.lower, users[:index]):
            yield Finding(path, f"{name} is in the list: Windows ignores upper and lower case", "leave one out")
