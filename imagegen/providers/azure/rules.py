"""What Azure does not take, and what would do nothing there. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of, table
from imagegen.judging import ERROR, WARNING, Finding, TargetRule
from imagegen.providers.azure.node_rules import gmsa_on_azure as gmsa_on_azure
from imagegen.providers.azure.node_rules import overlay_mtu_on_azure as overlay_mtu_on_azure
from imagegen.providers.azure.node_rules import pool_name_aks as pool_name_aks
from imagegen.providers.azure.node_rules import pool_name_on_azure as pool_name_on_azure
from imagegen.providers.azure.node_rules import pool_name_scale_set as pool_name_scale_set
from imagegen.providers.azure.settings import Settings
from imagegen.providers.azure.tags import OWN_TAGS
from imagegen.providers.shared_rules import (
    BASE_IMAGE_RELEASE,
    DISK_HOLDS_BASE_IMAGE,
    LICENCE_ACKNOWLEDGED,
    NETWORK_FORM,
    WINDOWS_OFFERED,
    find_other_windows,
    find_small_disk,
    find_unacknowledged_licence,
    find_unknown_regions,
    find_wrong_networks,
    offered_image,
    publish_regions,
)
from imagegen.providers.tags import COMPONENT_TAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.catalog.facts import JsonObject
    from imagegen.documents.yaml import YamlPath
    from imagegen.settle.spec import Spec

    Target = Spec[Settings]

_TAGS_WRITTEN: Final = OWN_TAGS | COMPONENT_TAGS
# https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources#limitations
_AZURES_OWN: Final = ("azure", "microsoft", "windows")


rule = TargetRule(Settings)


@rule("azure-replica-in-build-region", ERROR, "publish.regions must not contain the build region")
def azure_replica_in_build_region(target: Target) -> Iterator[Finding]:
    azure = target.settings
    for index, region in enumerate(azure.publish.regions):
        if region == azure.location:
            yield Finding(
                ("publish", "regions", index),
                f"{region} is the build region, which has the image already",
                "leave it out",
            )


@rule("azure-public-cloud", ERROR, "Locations must be in Azure's public cloud")
def azure_public_cloud(target: Target) -> Iterator[Finding]:
    azure, rows = target.settings, table("clouds")["azure_clouds"]
    places: list[tuple[YamlPath, str]] = [(("location",), azure.location)]
    places += [(("publish", "regions", index), region) for index, region in enumerate(azure.publish.regions)]
    for path, location in places:
        row = next((row for row in rows if location.startswith(row["prefix"])), None)
        if row:
            yield Finding(
                path,
                f"{location} is in another Azure cloud ({row['cloud']}), which imagegen does not speak to yet",
                "choose a location of the public cloud, as eastus2",
            )


@rule("azure-open-to-everybody", WARNING, "The builder's WinRM port should not be open to the whole internet")
def azure_open_to_everybody(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    message = "everybody may try passwords at the builder's WinRM port while it runs"
    if not network.virtual_network and not network.allowed_cidrs:
        yield Finding(
            ("network",),
            f"a temporary network admits any address: {message}",
            "name the networks that Packer comes from under allowed_cidrs",
        )
    for index, cidr in enumerate(network.allowed_cidrs):
        if cidr.endswith("/0"):
            yield Finding(("network", "allowed_cidrs", index), message, "narrow it to where Packer runs")


@rule("gallery-version", ERROR, "A gallery version must be three numbers")
def gallery_version(target: Target) -> Iterator[Finding]:
    azure, limit = target.settings, limit_of("gallery_version")
    path, version, kubernetes = ("gallery", "version"), azure.gallery.version, target.config.kubernetes.version
    if version == "kubernetes" and "-" in kubernetes:
        yield Finding(path, f"a gallery version has three numbers, and {kubernetes} has more", "choose version: date")
        return
    numbers = kubernetes if version == "kubernetes" else version
    fits = re.search(limit["pattern"], numbers) and all(_is_small(part, limit["max"]) for part in numbers.split("."))
    if version != "date" and not fits:
        yield Finding(
            path, f"{numbers} does not fit: {limit['reason']}", "choose date, kubernetes, or numbers as 1.0.0"
        )


def _is_small(number: str, most: int) -> bool:
    # Python refuses to read a number of thousands of digits.
    return len(number) <= len(str(most)) and int(number) <= most


@rule("gallery-name", ERROR, "The gallery's name must be valid on Azure")
def gallery_name(target: Target) -> Iterator[Finding]:
    yield from _name(("gallery", "name"), target.settings.gallery.name, limit_of("gallery"))


@rule("gallery-definition-name", ERROR, "The image definition's name must be valid on Azure")
def gallery_definition_name(target: Target) -> Iterator[Finding]:
    yield from _name(("gallery", "definition"), target.settings.gallery.definition, limit_of("gallery_definition"))


def _name(path: YamlPath, name: str, limit: JsonObject) -> Iterator[Finding]:
    if not re.search(limit["pattern"], name):
        yield Finding(path, f"Azure takes no {name}: {limit['reason']}", "name it as it is called in Azure")
    elif len(name) > limit["max"]:
        yield Finding(path, f"it has {len(name)} characters, and Azure takes {limit['max']}", "choose a shorter one")


@rule("azure-size-generation", ERROR, "The builder's sizes must support the machine generation")
def azure_size_generation(target: Target) -> Iterator[Finding]:
    azure = target.settings
    for index, size in enumerate(azure.vm_sizes):
        row = _size(size)
        if row and azure.generation not in row["generations"]:
            takes = " and ".join(str(number) for number in row["generations"]) or "none that Windows runs on"
            yield Finding(
                ("vm_sizes", index),
                f"{size} makes no machine of generation {azure.generation} (it takes {takes}; {row['note']})",
                "choose another size" if not row["generations"] else f"choose another size, or generation {takes}",
            )


@rule("azure-size-security", ERROR, "The builder's sizes must support the security type")
def azure_size_security(target: Target) -> Iterator[Finding]:
    azure = target.settings
    for index, size in enumerate(azure.vm_sizes):
        row = _size(size)
        takes = [kind.lower() for kind in row["security"]] if row else []
        if takes and row and azure.security_type.lower() not in takes:
            message = f"{size} makes no machine of security type {azure.security_type} ({row['note']})"
            kinds = " or ".join(kind[:1].upper() + kind[1:] for kind in row["security"])
            hint = f"choose another size, or security_type: {kinds}"
            yield Finding(("vm_sizes", index), message, hint)


def _size(size: str) -> JsonObject | None:
    """The first row that fits; of sizes that nobody knows nothing is said."""
    rows: list[JsonObject] = table("azure-sizes")["sizes"]
    return next((row for row in rows if re.fullmatch(row["pattern"], size.lower())), None)


@rule("azure-security-generation", ERROR, "TrustedLaunch and ConfidentialVM require generation: 2")
def azure_security_generation(target: Target) -> Iterator[Finding]:
    azure = target.settings
    if azure.security_type != "Standard" and azure.generation != 2:
        yield Finding(
            ("security_type",),
            f"{azure.security_type} needs UEFI, which machines of generation {azure.generation} do not have",
            "choose generation: 2",
        )


@rule("azure-network-named", ERROR, "Settings of a network of your own require virtual_network")
def azure_network_named(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    for key in ("subnet", "resource_group", "public_address"):
        if getattr(network, key) and not network.virtual_network:
            yield Finding(
                ("network", key),
                "it is said of a network of your own, and the builder gets a temporary one",
                "name the virtual_network, or leave this out",
            )


@rule("azure-subnet-and-group", ERROR, "subnet and resource_group of a network must be set together")
def azure_subnet_and_group(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    for key, other in (("subnet", "resource_group"), ("resource_group", "subnet")):
        if network.virtual_network and getattr(network, key) and not getattr(network, other):
            yield Finding(
                ("network", key),
                f"Packer's plugin looks for both itself, or takes both: without {other} it would not heed this",
                f"name the {other} too, or leave both out",
            )


@rule("azure-replica-count", ERROR, "A gallery version must have at most 100 replicas")
def azure_replica_count(target: Target) -> Iterator[Finding]:
    azure, limit = target.settings, limit_of("gallery_replicas")
    if azure.publish.replicas * (len(azure.publish.regions) + 1) > limit["max"]:
        yield Finding(
            ("publish", "replicas"),
            f"in all regions together that is more than the {limit['max']} that a version may have",
            "ask for fewer, or for fewer regions",
        )


@rule("azure-key-of-build-region", WARNING, "An image with disk_encryption_set should stay in the build region")
def azure_key_of_build_region(target: Target) -> Iterator[Finding]:
    azure = target.settings
    if azure.disk_encryption_set and azure.publish.regions:
        yield Finding(
            ("disk_encryption_set",),
            "a set is of one region: replicas in others are encrypted with the platform's key",
            "leave publish.regions out where that may not be",
        )


@rule("azure-cidrs-of-temporary-network", ERROR, "allowed_cidrs and virtual_network must not be used together")
def azure_cidrs_of_temporary_network(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    if network.virtual_network and network.allowed_cidrs:
        yield Finding(
            ("network", "allowed_cidrs"),
            "in a network of your own its security groups decide, and Packer's plugin refuses both together",
            "leave one of both out",
        )


@rule("azure-key-vault-in-group", ERROR, "key_vault requires build_resource_group")
def azure_key_vault_in_group(target: Target) -> Iterator[Finding]:
    azure = target.settings
    if azure.key_vault and not azure.build_resource_group:
        yield Finding(
            ("key_vault",),
            "the vault is looked for in the build's resource group, and that is a temporary one",
            "name its build_resource_group, or leave this out",
        )


@rule("azure-secret-of-environment", ERROR, "client_secret_env requires method: environment")
def azure_secret_of_environment(target: Target) -> Iterator[Finding]:
    auth = target.settings.auth
    if auth.client_secret_env and auth.method == "cli":
        yield Finding(
            ("auth", "client_secret_env"),
            "`az login` says whose subscription it is, and no secret is read",
            "leave it out, or choose method: environment",
        )


@rule("azure-shared-one-way", ERROR, "A gallery must be shared with a community or directly, not both")
def azure_shared_one_way(target: Target) -> Iterator[Finding]:
    sharing = target.settings.publish.sharing
    if sharing and sharing.community and (sharing.subscriptions or sharing.tenants):
        yield Finding(
            ("publish", "sharing", "community"),
            "a gallery is a community's or is shared directly, and never both",
            "choose one, and another gallery for the other",
        )


@rule("azure-tag-name", ERROR, "A tag must not have a name that imagegen or Azure uses itself")
def azure_tag_name(target: Target) -> Iterator[Finding]:
    own, seen = {name.lower() for name in _TAGS_WRITTEN}, set[str]()
    for name in target.settings.tags:
        path, plain = ("tags", name), name.lower()
        if plain.startswith(_AZURES_OWN):
            yield Finding(
                path, f"Azure keeps names that begin with {', '.join(_AZURES_OWN)} for itself", "choose another name"
            )
        elif plain.startswith("imagegen") or plain in own:
            yield Finding(path, "imagegen writes this tag itself, over what is said here", "choose another name")
        elif plain in seen:
            yield Finding(
                path, "Azure does not tell capital letters from small ones, and has it already", "leave one out"
            )
        seen.add(plain)


@rule("azure-tag-count", ERROR, "An Azure resource must have at most 50 tags", "Azure rejects a resource with more")
def azure_tag_count(target: Target) -> Iterator[Finding]:
    tags, limit = target.settings.tags, limit_of("azure_tags")
    room = limit["max"] - len(_TAGS_WRITTEN)
    if len(tags) > room:
        yield Finding(
            ("tags",),
            f"{limit['reason']}, of which {len(_TAGS_WRITTEN)} are imagegen's, and here are {len(tags)}",
            f"keep at most {room}, and fewer where a build has labels",
        )


@rule("azure-location-known", WARNING, "The catalogue should know the Azure regions")
def azure_location_known(target: Target) -> Iterator[Finding]:
    """Other Azure clouds are refused by a rule of their own."""
    azure = target.settings
    others = tuple(row["prefix"] for row in table("clouds")["azure_clouds"])
    places = {("location",): azure.location, **publish_regions(azure.publish.regions)}
    own = {path: region for path, region in places.items() if not region.startswith(others)}
    yield from find_unknown_regions("azure", "Azure", own)


@rule("azure-secret-name", ERROR, "client_secret_env must name a variable that holds nothing else")
def azure_secret_name(target: Target) -> Iterator[Finding]:
    name = target.settings.auth.client_secret_env
    if not name:
        return
    row = next((row for row in table("variables")["names"] if re.fullmatch("|".join(row["patterns"]), name)), None)
    if row:
        yield Finding(
            ("auth", "client_secret_env"),
            f"{name} does not hold a client secret: {row['means']}",
            "name a variable that holds nothing but the secret, as IMAGES_CLIENT_SECRET",
        )


@rule(*WINDOWS_OFFERED)
def windows_offered(target: Target) -> Iterator[Finding]:
    """A base image of the operator's own choice needs no offer."""
    azure, image = target.settings, offered_image(target)
    if image and image["sku"][str(azure.generation)] is None and not azure.base_image:
        yield Finding(
            ("generation",),
            image["reason"],
            "choose the other generation, or name an image of your own choice under base_image",
        )


@rule(*DISK_HOLDS_BASE_IMAGE)
def disk_holds_base_image(target: Target) -> Iterator[Finding]:
    if not target.settings.base_image:
        yield from find_small_disk(target, ("disk_size_gb",), target.settings.disk_size_gb)


@rule(*BASE_IMAGE_RELEASE)
def base_image_release(target: Target) -> Iterator[Finding]:
    if image := target.settings.base_image:
        yield from find_other_windows(
            target, f"{image.publisher}/{image.offer}/{image.sku}", target.settings.generation
        )


@rule(*LICENCE_ACKNOWLEDGED)
def licence_acknowledged(target: Target) -> Iterator[Finding]:
    sharing = target.settings.publish.sharing
    yield from find_unacknowledged_licence(
        is_shared=sharing is not None, is_acknowledged=sharing is not None and sharing.licence_acknowledged
    )


@rule(*NETWORK_FORM)
def network_form(target: Target) -> Iterator[Finding]:
    yield from find_wrong_networks(target.settings.network.allowed_cidrs)
