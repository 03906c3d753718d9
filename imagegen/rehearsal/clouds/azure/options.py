"""What an Azure of the rehearsal holds from the start: gallery definitions, groups and marketplace images."""

from __future__ import annotations

import dataclasses

PUBLISHER = "MicrosoftWindowsServer"

_VCPUS = (2, 4, 8)
_CORES_AND_SIZES = ("", "-core", "-smalldisk", "-core-smalldisk")
# Per release: its offer, and two versions, so that "the newest" is a choice.
_RELEASES = {
    "2019": ("windowsserver", ("17763.8276.251212", "17763.8389.260210")),
    "2022": ("windowsserver2022", ("20348.5386.260713", "20348.5499.260809")),
    "2025": ("windowsserver", ("26100.33158.260713", "26100.33296.260809")),
}


def default_marketplace() -> dict[tuple[str, str], tuple[str, ...]]:
    """Versions by (offer, sku), in lower case because Azure compares them so."""
    skus: dict[tuple[str, str], tuple[str, ...]] = {
        (offer, f"{release}-datacenter{kind}{generation_end}"): versions
        for release, (offer, versions) in _RELEASES.items()
        for kind in _CORES_AND_SIZES
        for generation_end in ("", "-g2")
    }
    # The one SKU whose second generation has a name of its own.
    skus["windowsserver", "2019-datacenter-gensecond"] = _RELEASES["2019"][1]
    # The annual channel is core alone, and has no small disk; its support ended with the second of these.
    annual = ("25398.1791.250812", "25398.1913.251014")
    skus |= {("windowsserver", f"23h2-datacenter-core{generation_end}"): annual for generation_end in ("", "-g2")}
    return skus


def generation(sku: str) -> str:
    """V1 or V2, as the SKU's name says."""
    return "V2" if sku.lower().endswith(("-g2", "-gensecond")) else "V1"


@dataclasses.dataclass(frozen=True)
class GalleryDefinition:
    """An image definition that exists before a build; its group and gallery are made with it."""

    resource_group: str
    gallery: str
    image: str
    location: str = "westeurope"
    generation: str = "V2"
    os_state: str = "Generalized"
    security_type: str = ""
    os_type: str = "Windows"
    architecture: str = "x64"


@dataclasses.dataclass(frozen=True)
class ExistingGroup:
    """A resource group that exists before a build, with a network of one subnet or a key vault where they are named."""

    name: str
    location: str = "westeurope"
    network: str = ""
    subnet: str = "default"
    key_vault: str = ""


@dataclasses.dataclass(frozen=True)
class Size:
    """A size of virtual machines as the subscription is offered it; `restricted` is why it may not be used."""

    family: str
    vcpus: int
    generations: str = "V1,V2"
    trusted_launch: bool = True
    confidential: str = ""
    restricted: str = ""


def default_sizes() -> dict[str, Size]:
    """A few sizes as Azure names them, by the vCPUs in their names."""
    families = {"D{}s_v5": "standardDSv5Family", "D{}as_v5": "standardDASv5Family", "D{}s_v3": "standardDSv3Family"}
    sizes = {
        f"Standard_{name.format(vcpus)}": Size(family, vcpus) for name, family in families.items() for vcpus in _VCPUS
    }
    return sizes | {"Standard_DC4as_v5": Size("standardDCASv5Family", 4, generations="V2", confidential="SNP")}
