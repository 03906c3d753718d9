"""Checks that the rules of several clouds share: regions, base images, licence, networks, tags. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import JsonObject, limit_of, table
from imagegen.config.problems import closest
from imagegen.rules.rule import ERROR, WARNING, Finding

if TYPE_CHECKING:
    from imagegen.config.yaml import YamlPath
    from imagegen.settle.spec import Spec

# Rules that each cloud checks in its own settings: id, severity, summary and reason.
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
    "registry fixes and container images are chosen for the Windows release in the config",
)

BUILD_REGION_PUBLISHED: Final = (
    "build-region-published",
    ERROR,
    "publish.regions must not contain the build region",
)
WINRM_OPEN_TO_EVERYBODY: Final = (
    "winrm-open-to-everybody",
    WARNING,
    "The builder's WinRM port should not be open to the whole internet",
)
TAG_NAME: Final = ("tag-name", ERROR, "A tag must not have a name that imagegen or the cloud uses itself")
TAG_COUNT: Final = (
    "tag-count",
    ERROR,
    "A resource must have at most as many tags as the cloud allows",
    "the cloud rejects a resource with more",
)
REGION_KNOWN: Final = ("region-known", WARNING, "The catalogue should know the regions of the cloud")
HYPER_V_SIZE: Final = (
    "hyper-v-size",
    ERROR,
    "windows.hyper_v: isolation requires sizes on which a hypervisor can start",
    "the hypervisor starts on the builder too: on another size no build shows that it does",
)


def publish_regions(regions: Sequence[str]) -> dict[YamlPath, str]:
    """The regions in `publish.regions` by their paths in the target."""
    return {("publish", "regions", index): region for index, region in enumerate(regions)}


def find_build_region(regions: Sequence[str], build_region: str) -> list[Finding]:
    """Find the build region in `publish.regions`."""
    return [
        Finding(path, f"{region} is the build region, which always has the image", "leave it out")
        for path, region in publish_regions(regions).items()
        if region == build_region
    ]


def find_unknown_regions(provider: str, title: str, places: dict[YamlPath, str]) -> Iterator[Finding]:
    """Find regions that are not in the catalogue. They may be new: imagegen works with any region."""
    known = table("regions")[provider]
    for path, region in places.items():
        if region not in known:
            close = closest(region, known)
            yield Finding(
                path,
                f"unknown {title} region {region}: it is newer than the catalogue, or misspelled",
                f"did you mean {close}?" if close else "`imagegen catalog regions` lists them",
            )


def offered_image(spec: Spec) -> JsonObject:
    """The catalogue's row of the cloud's own base image; empty for a Windows that is not in the catalogue."""
    windows = spec.config.windows
    images: dict[str, dict[str, JsonObject]] = table("windows")["releases"].get(windows.release, {}).get("images", {})
    return images.get(windows.edition, {}).get(spec.provider, {})


def find_small_disk(spec: Spec, path: YamlPath, size_gb: int | None) -> Iterator[Finding]:
    """Find a disk that is smaller than the cloud's own base image. The sizes of other images are unknown here."""
    least = offered_image(spec).get("disk_gb")
    if size_gb is not None and least is not None and size_gb < least:
        yield Finding(
            path,
            f"{size_gb} GB is less than the disk of the base image ({least} GB), which cannot shrink",
            f"write {least} or more, or leave it out",
        )


def find_other_windows(spec: Spec, name: str, generation: int | None = None) -> Iterator[Finding]:
    """Find contradictions between the name of a base image and the config. A name that says nothing passes: the build
    itself checks the machine."""
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
            f"by its name, {name} has Windows {' or '.join(sorted(named))}, but the config has {windows.release}",
            f"choose an image with {windows.release}, or change windows.release",
        )
    other = "full" if windows.edition == "core" else "core"
    if re.search(patterns[other], plain) and not re.search(patterns[windows.edition], plain):
        yield Finding(
            path,
            f"by its name, {name} has the edition {other!r}, but the config has {windows.edition!r}",
            f"choose an image with that edition, or write windows.edition: {other}",
        )
    if generation == 1 and re.search(patterns["generation_2"], plain):
        yield Finding(
            path,
            f"by its name, {name} has generation 2, but the config has generation 1",
            "choose an image of generation 1, or write generation: 2",
        )


def find_too_many_tags(own: Sized, limit_name: str, written: Sized) -> Iterator[Finding]:
    """Find more tags than the cloud allows together with those that imagegen writes."""
    limit = limit_of(limit_name)
    room = limit["max"] - len(written)
    if len(own) > room:
        yield Finding(
            ("tags",),
            f"{limit['reason']}; imagegen writes {len(written)}, and the config has {len(own)}",
            f"keep at most {room}, and fewer for builds with labels",
        )


def find_open_networks(cidrs: Sequence[str]) -> list[Finding]:
    """Find networks in `network.allowed_cidrs` that contain the whole internet."""
    return [
        Finding(
            ("network", "allowed_cidrs", index),
            f"{cidr} opens the builder's WinRM port to the whole internet while it runs",
            "write the network where Packer runs",
        )
        for index, cidr in enumerate(cidrs)
        if cidr.endswith("/0")
    ]
