"""The initial resources of the subscription: gallery definitions, groups, marketplace images and sizes."""

from __future__ import annotations

import dataclasses

PUBLISHER = "MicrosoftWindowsServer"

_VCPUS = (2, 4, 8)
_CORES_AND_SIZES = ("", "-core", "-smalldisk", "-core-smalldisk")
# For each release: its offer, and two versions, so that the newest one must be chosen.
_RELEASES = {
    "2019": ("windowsserver", ("17763.8276.251212", "17763.8389.260210")),
    "2022": ("windowsserver2022", ("20348.5386.260713", "20348.5499.260809")),
    "2025": ("windowsserver", ("26100.33158.260713", "26100.33296.260809")),
}


def default_marketplace() -> dict[tuple[str, str], tuple[str, ...]]:
    """Versions by offer and SKU, in lower case because Azure ignores case."""
    skus: dict[tuple[str, str], tuple[str, ...]] = {
        (offer, f"{release}-datacenter{kind}{generation_end}"): versions
        for release, (offer, versions) in _RELEASES.items()
        for kind in _CORES_AND_SIZES
        for generation_end in ("", "-g2")
    }
    # The only SKU whose second generation has another suffix.
    skus["windowsserver", "2019-datacenter-gensecond"] = _RELEASES["2019"][1]
    # The annual channel has only Server Core, without small disks. Its support ended with the second version.
    annual = ("25398.1791.250812", "25398.1913.251014")
    skus |= {("windowsserver", f"23h2-datacenter-core{generation_end}"): annual for generation_end in ("", "-g2")}
    return skus


def generation(sku: str) -> str:
    """The generation V1 or V2, which the name of a SKU shows."""
    return "V2" if sku.lower().endswith(("-g2", "-gensecond")) else "V1"


@dataclasses.dataclass(frozen=True)
class GalleryDefinition:
    """An image definition that exists before a build, with its group and gallery."""

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
    """A resource group that exists before a build, with an optional network of one subnet and an optional key vault."""

    name: str
    location: str = "westeurope"
    network: str = ""
    subnet: str = "default"
    key_vault: str = ""


@dataclasses.dataclass(frozen=True)
class Size:
    """A size of virtual machines. `restricted` is the reason why the subscription cannot use it."""

    family: str
    vcpus: int
    generations: str = "V1,V2"
    trusted_launch: bool = True
    confidential: str = ""
    restricted: str = ""


def default_sizes() -> dict[str, Size]:
    """Some of Azure's sizes."""
    families = {"D{}s_v5": "standardDSv5Family", "D{}as_v5": "standardDASv5Family", "D{}s_v3": "standardDSv3Family"}
    sizes = {
        f"Standard_{name.format(vcpus)}": Size(family, vcpus) for name, family in families.items() for vcpus in _VCPUS
    }
    return sizes | {"Standard_DC4as_v5": Size("standardDCASv5Family", 4, generations="V2", confidential="SNP")}
