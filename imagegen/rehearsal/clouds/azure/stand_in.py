"""The stand-in of Azure: from the settings of a target, it makes the initial state of the subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.providers.azure.settings import Settings
from imagegen.rehearsal.clouds.azure.boot import AzurePlatform, make_instance
from imagegen.rehearsal.clouds.azure.cloud import AzureOptions
from imagegen.rehearsal.clouds.azure.options import ExistingGroup, GalleryDefinition
from imagegen.rehearsal.clouds.azure.resources import REGIONS
from imagegen.rehearsal.clouds.model import StandIn, UnsupportedSetting
from imagegen.rehearsal.network.machine import operator_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.config.yaml import YamlPath

_STANDARD = "Standard"


def _options(azure: Settings, _folder: Path) -> AzureOptions:
    definition = GalleryDefinition(
        resource_group=azure.gallery.resource_group,
        gallery=azure.gallery.name,
        image=azure.gallery.definition,
        location=azure.location,
        generation=f"V{azure.generation}",
        security_type="" if azure.security_type == _STANDARD else azure.security_type,
    )
    groups = []
    if azure.build_resource_group:
        groups.append(ExistingGroup(azure.build_resource_group, azure.location, key_vault=azure.key_vault or ""))
    if azure.network.virtual_network:
        name, subnet = azure.network.resource_group or "networks", azure.network.subnet or "default"
        groups.append(ExistingGroup(name, azure.location, azure.network.virtual_network, subnet))
    return AzureOptions(
        definitions=(definition,),
        groups=tuple(groups),
        operator=operator_address(azure.network.allowed_cidrs),
        encryption_sets={azure.disk_encryption_set: azure.location} if azure.disk_encryption_set else {},
        operator_network="" if azure.network.public_address else azure.network.virtual_network or "",
    )


def _regions(azure: Settings) -> dict[YamlPath, str]:
    places: dict[YamlPath, str] = {("location",): azure.location}
    return places | {("publish", "regions", number): name for number, name in enumerate(azure.publish.regions)}


def _find_unsupported(azure: Settings) -> Iterator[UnsupportedSetting]:
    if azure.auth != type(azure.auth)():
        message = "a rehearsal supports only its own subscription"
        yield UnsupportedSetting(("auth",), message, "{}")


STAND_IN: Final = StandIn[Settings](
    options=_options,
    regions=_regions,
    known_regions=frozenset(REGIONS),
    sizes=lambda azure: azure.vm_sizes,
    make_instance=make_instance,
    make_platform=AzurePlatform,
    agents="the Azure agents",
    account_options=AzureOptions,
    find_unsupported=_find_unsupported,
)
