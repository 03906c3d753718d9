"""What the clouds' own rules have in common: regions that nobody knows, and base images. Pure."""

from __future__ import annotations

import difflib
import ipaddress
import re
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import table
from imagegen.judging import ERROR, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.catalog.facts import JsonObject
    from imagegen.documents.yaml import YamlPath
    from imagegen.settle.spec import Spec

# Rules that each cloud checks in its own settings: id, severity, sentence and reason.
WINDOWS_OFFERED: Final = ("windows-offered", ERROR, "The cloud must offer a base image of the Windows release")
DISK_HOLDS_BASE_IMAGE: Final = (
    "disk-holds-base-image",
    ERROR,
    "The disk must be at least as large as the base image's",
)
BASE_IMAGE_RELEASE: Final = (
    "base-image-release",
    ERROR,
    "A base image of your own must have the release, edition and generation of the config",
    "registry fixes and container images are chosen for the Windows that the config asks for",
)

LICENCE_ACKNOWLEDGED: Final = (
    "licence-acknowledged",
    ERROR,
    "Sharing a Windows image requires licence_acknowledged: true",
)
NETWORK_FORM: Final = (
    "network-form",
    ERROR,
    "Each of allowed_cidrs must be a network",
    "an address that is no network is usually a typing error",
)


def publish_regions(regions: Sequence[str]) -> dict[YamlPath, str]:
    """Each region of `publish.regions` by its path in the target."""
    return {("publish", "regions", index): region for index, region in enumerate(regions)}


def find_unknown_regions(provider: str, title: str, places: dict[YamlPath, str]) -> Iterator[Finding]:
    """Regions that the catalogue does not have. They may be new: imagegen needs to know nothing about one."""
    known = table("regions")[provider]
    for path, region in places.items():
        if region not in known:
            close = difflib.get_close_matches(region, known, n=1)
            yield Finding(
                path,
                f"the catalogue knows no {title} region {region}: it is newer than the catalogue, or misspelt",
                f"did you mean {close[0]}?" if close else "`imagegen catalog regions` lists them",
            )


def offered_image(spec: Spec) -> JsonObject:
    """The catalogue's row of the cloud's own base image; empty where the catalogue does not know the Windows."""
    windows = spec.config.windows
    images = table("windows")["releases"].get(windows.release, {}).get("images", {})
    row: JsonObject = images.get(windows.edition, {}).get(spec.provider, {})
    return row


def find_small_disk(spec: Spec, path: YamlPath, size_gb: int | None) -> Iterator[Finding]:
    """A disk that does not hold the cloud's own base image. The size of any other image is not known here."""
    least = offered_image(spec).get("disk_gb")
    if size_gb is not None and least is not None and size_gb < least:
        yield Finding(
            path,
            f"the base image has a disk of {least} GB, and no cloud makes it smaller",
            f"choose {least} or more, or leave it out",
        )


def find_other_windows(spec: Spec, name: str, generation: int | None = None) -> Iterator[Finding]:
    """What an image's name plainly says that the config does not. A name that says nothing is believed: the machine
    looks when it is built."""
    windows, facts, plain = spec.config.windows, table("windows"), name.lower()
    patterns: JsonObject = facts["base_images"][spec.provider]
    path: YamlPath = ("base_image",)
    named = {
        facts["release_words"][word]
        for word in re.findall(patterns["release"], plain)
        if word in facts["release_words"]
    }
    if named and windows.release not in named:
        yield Finding(
            path,
            f"{name} is of Windows {' or '.join(sorted(named))} by its name, and the config is of {windows.release}",
            "name an image of the release, or choose the release of the image",
        )
    other = "full" if windows.edition == "core" else "core"
    if re.search(patterns[other], plain) and not re.search(patterns[windows.edition], plain):
        yield Finding(
            path,
            f"{name} is of the edition {other!r} by its name, and the config is of {windows.edition!r}",
            f"name an image of the edition, or say windows.edition: {other}",
        )
    if generation == 1 and re.search(patterns["generation_2"], plain):
        yield Finding(
            path,
            f"{name} is of generation 2 by its name, and the config is of generation 1",
            "name an image of the generation, or say generation: 2",
        )


def find_unacknowledged_licence(*, is_shared: bool, is_acknowledged: bool) -> Iterator[Finding]:
    """Images of Windows go to others only under the terms of their licence."""
    if is_shared and not is_acknowledged:
        yield Finding(
            ("publish", "sharing"),
            "an image of Windows goes to others only under the terms of Windows' licence, which you answer for",
            "read them, and say licence_acknowledged: true; or leave sharing out",
        )


def find_wrong_networks(cidrs: Sequence[str]) -> Iterator[Finding]:
    """Those of `network.allowed_cidrs` that are no networks, with what may be meant."""
    for index, cidr in enumerate(cidrs):
        if wrong := _wrong_network(cidr):
            yield Finding(("network", "allowed_cidrs", index), f"{cidr} is no network: {wrong[0]}", wrong[1])


def _wrong_network(cidr: str) -> tuple[str, ...]:
    """Why it is no network and what may be meant; nothing where it is one."""
    try:
        network = ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        return "an address has four numbers up to 255, a prefix one up to 32", "write it as 198.51.100.0/24"
    if str(network) != cidr:
        return f"an address within {network}", f"write {network}, or {cidr.partition('/')[0]}/32 for one machine"
    return ()
