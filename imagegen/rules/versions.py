"""Versions and releases: whether the catalogue knows them, and whether Windows comes as it is asked for. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.catalog.facts import known, minor, table
from imagegen.rules.rule import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.catalog.facts import JsonObject
    from imagegen.documents.yaml import YamlPath
    from imagegen.rules.rule import Asked

_RELEASE: YamlPath = ("windows", "release")
_KUBERNETES: YamlPath = ("kubernetes", "version")
_CONTAINERD: YamlPath = ("runtime", "containerd", "version")


@rule(
    "kubernetes-known",
    ERROR,
    "The Kubernetes minor must be in the catalogue",
    why="the pause image, crictl, the feature gates and the end of support come from the catalogue",
)
def kubernetes_known(asked: Asked) -> Iterator[Finding]:
    yield from _unknown(_KUBERNETES, "Kubernetes", asked.config.kubernetes.version, "kubernetes", "minors")


@rule(
    "kubernetes-newer-than-catalogue",
    WARNING,
    "The Kubernetes minor should not be newer than the catalogue",
    why="nobody has checked which pause image, crictl and flags that Kubernetes needs",
)
def kubernetes_newer(asked: Asked) -> Iterator[Finding]:
    yield from _newer(_KUBERNETES, "Kubernetes", asked.config.kubernetes.version, "kubernetes", "minors")


@rule(
    "containerd-known",
    ERROR,
    "The containerd line must be in the catalogue",
    why="the config schema, the fitting Kubernetes minors and the end of support come from the catalogue",
)
def containerd_known(asked: Asked) -> Iterator[Finding]:
    if containerd := asked.config.runtime.containerd:
        yield from _unknown(_CONTAINERD, "containerd", containerd.version, "containerd", "lines")


@rule(
    "containerd-newer-than-catalogue",
    WARNING,
    "The containerd line should not be newer than the catalogue",
    why="nobody has checked which config schema and which Kubernetes that containerd needs",
)
def containerd_newer(asked: Asked) -> Iterator[Finding]:
    if containerd := asked.config.runtime.containerd:
        yield from _newer(_CONTAINERD, "containerd", containerd.version, "containerd", "lines")


def _unknown(path: YamlPath, product: str, version: str, name: str, rows: str) -> Iterator[Finding]:
    if known(table(name)[rows], version) is None:
        message = f"the catalogue knows no {product} {minor(version)}"
        known_ones = list(table(name)[rows])
        # Of so many without a gap the ends say it.
        listed = f"{known_ones[0]} to {known_ones[-1]}" if name == "kubernetes" else ", ".join(known_ones)
        yield Finding(path, message, f"known: {listed}")


def _newer(path: YamlPath, product: str, version: str, name: str, rows: str) -> Iterator[Finding]:
    found = known(table(name)[rows], version)
    if found and found.newer:
        message = f"{product} {minor(version)} is newer than the catalogue: the facts of {found.minor} are taken"
        yield Finding(path, message, f"choose {found.minor}, or read what has changed since and try the image")


@rule("cloudbase-init-known", WARNING, "The cloudbase-init version should be in the catalogue")
def cloudbase_init_known(asked: Asked) -> Iterator[Finding]:
    version, versions = asked.config.cloudbase_init.version, table("cloudbase-init")["versions"]
    if version not in versions:
        message = f"the catalogue does not know cloudbase-init {version}, and nobody has tried it here"
        yield Finding(("cloudbase_init", "version"), message, f"known: {', '.join(versions)}")


@rule(
    "windows-release-known",
    ERROR,
    "The Windows release must be in the catalogue",
    why="base images, registry fixes and container images depend on the release",
)
def windows_release_known(asked: Asked) -> Iterator[Finding]:
    release, windows = asked.config.windows.release, table("windows")
    if release not in windows["releases"] and release not in windows["refused"]:
        message = f"the catalogue knows no Windows release {release!r}"
        yield Finding(_RELEASE, message, f"choose one of {', '.join(windows['releases'])}")


@rule("windows-release-refused", ERROR, "The Windows release must still work as a Kubernetes node")
def windows_release_refused(asked: Asked) -> Iterator[Finding]:
    windows = table("windows")
    if refused := windows["refused"].get(asked.config.windows.release):
        yield Finding(_RELEASE, refused["reason"], f"choose one of {', '.join(windows['releases'])}")


@rule("windows-edition", ERROR, "The Windows release must exist in this edition")
def windows_edition(asked: Asked) -> Iterator[Finding]:
    windows = asked.config.windows
    release = table("windows")["releases"].get(windows.release)
    if release and windows.edition not in release["editions"]:
        message = f"{release['title']} has no edition {windows.edition!r}"
        yield Finding(("windows", "edition"), message, f"choose {' or '.join(release['editions'])}")


@rule("windows-offered", ERROR, "The cloud must offer a base image of the Windows release")
def windows_offered(asked: Asked) -> Iterator[Finding]:
    """A base image of the operator's own needs no offer."""
    windows, targets = asked.config.windows, asked.config.targets
    images = table("windows")["releases"].get(windows.release, {}).get("images", {}).get(windows.edition)
    if images is None:
        return
    if targets.aws and not targets.aws.base_image and images["aws"]["name"] is None:
        hint = "choose another release, or name an image of your own under base_image"
        yield Finding(("targets", "aws"), images["aws"]["reason"], hint)
    azure = targets.azure
    if azure and not azure.base_image and images["azure"]["sku"][str(azure.generation)] is None:
        hint = "choose the other generation, or name an image of your own choice under base_image"
        yield Finding(("targets", "azure", "generation"), images["azure"]["reason"], hint)


@rule("disk-holds-base-image", ERROR, "The disk must be at least as large as the base image's")
def disk_holds_base_image(asked: Asked) -> Iterator[Finding]:
    """Of a base image of the operator's own nobody here knows the size."""
    windows, targets = asked.config.windows, asked.config.targets
    images = table("windows")["releases"].get(windows.release, {}).get("images", {}).get(windows.edition, {})
    sizes: list[tuple[str, YamlPath, int | None]] = []
    if targets.aws and not targets.aws.base_image:
        sizes.append(("aws", ("targets", "aws", "disk", "size_gb"), targets.aws.disk.size_gb))
    if targets.azure and not targets.azure.base_image:
        sizes.append(("azure", ("targets", "azure", "disk_size_gb"), targets.azure.disk_size_gb))
    for target, path, size in sizes:
        least = images.get(target, {}).get("disk_gb")
        if size is not None and least is not None and size < least:
            message = f"the base image has a disk of {least} GB, and no cloud makes it smaller"
            yield Finding(path, message, f"choose {least} or more, or leave it out")


@rule(
    "base-image-release",
    ERROR,
    "A base image of your own must have the release, edition and generation of the config",
    why="registry fixes and container images are chosen for the Windows that the config asks for",
)
def base_image_release(asked: Asked) -> Iterator[Finding]:
    """A name that says nothing of it is believed: the machine looks when it is built."""
    aws, azure = asked.config.targets.aws, asked.config.targets.azure
    if aws and aws.base_image:
        yield from _another(asked, "aws", aws.base_image.name, None)
    if azure and azure.base_image:
        image = azure.base_image
        yield from _another(asked, "azure", f"{image.publisher}/{image.offer}/{image.sku}", azure.generation)


def _another(asked: Asked, target: str, name: str, generation: int | None) -> Iterator[Finding]:
    """What the name plainly says that the config does not."""
    windows, facts, plain = asked.config.windows, table("windows"), name.lower()
    patterns: JsonObject = facts["base_images"][target]
    path: YamlPath = ("targets", target, "base_image")
    words = re.findall(patterns["release"], plain)
    named = {facts["release_words"][word] for word in words if word in facts["release_words"]}
    if named and windows.release not in named:
        message = (
            f"{name} is of Windows {' or '.join(sorted(named))} by its name, and the config is of {windows.release}"
        )
        yield Finding(path, message, "name an image of the release, or choose the release of the image")
    other = "full" if windows.edition == "core" else "core"
    if re.search(patterns[other], plain) and not re.search(patterns[windows.edition], plain):
        message = f"{name} is of the edition {other!r} by its name, and the config is of {windows.edition!r}"
        yield Finding(path, message, f"name an image of the edition, or say windows.edition: {other}")
    if generation == 1 and re.search(patterns["generation_2"], plain):
        message = f"{name} is of generation 2 by its name, and the config is of generation 1"
        yield Finding(path, message, "name an image of the generation, or say generation: 2")
