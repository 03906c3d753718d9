"""Combinations that cannot work, refused before anything runs, with the reason. Pure; needs no lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.catalog.facts import minor, table
from imagegen.config.model import PinnedUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document
    from imagegen.errors import Problem
    from imagegen.steps.model import Step


def broken_rules(config: ImageConfig, document: Document, steps: Callable[[], Mapping[str, Step]]) -> list[Problem]:
    """Every rule that the config breaks; `steps` are asked for only where a rule needs them."""
    return [
        *_unknown_versions(config, document),
        *_names(config, document),
        *_regions(config, document),
        *_pinned_folders(config, document, steps),
    ]


def _unknown_versions(config: ImageConfig, document: Document) -> Iterator[Problem]:
    asked = (
        (("kubernetes", "version"), config.kubernetes.version, "Kubernetes", table("kubernetes")["minors"]),
        (
            ("runtime", "containerd", "version"),
            config.runtime.containerd.version,
            "containerd",
            table("containerd")["lines"],
        ),
    )
    for path, version, product, known in asked:
        if minor(version) not in known:
            message = f"the catalogue knows no {product} {minor(version)}"
            yield document.problem(path, message, f"known: {', '.join(known)}")


def _names(config: ImageConfig, document: Document) -> Iterator[Problem]:
    azure = config.targets.azure
    if azure and azure.gallery.version == "kubernetes" and "-" in config.kubernetes.version:
        message = f"a gallery version has three numbers, and {config.kubernetes.version} has more"
        yield document.problem(("targets", "azure", "gallery", "version"), message, "choose version: date")


def _regions(config: ImageConfig, document: Document) -> Iterator[Problem]:
    homes = {
        "aws": config.targets.aws and config.targets.aws.region,
        "azure": config.targets.azure and config.targets.azure.location,
    }
    for target, settings in config.targets.named().items():
        regions = settings.publish.regions
        for index, region in enumerate(regions):
            path = ("targets", target, "publish", "regions", index)
            if region == homes[target]:
                yield document.problem(
                    path, f"{region} is the build region, which has the image already", "leave it out"
                )
            elif region in regions[:index]:
                yield document.problem(path, f"{region} is here twice", "leave one out")


def _pinned_folders(
    config: ImageConfig, document: Document, steps: Callable[[], Mapping[str, Step]]
) -> Iterator[Problem]:
    pinned = [name for name, asked in config.overrides.items() if isinstance(asked, PinnedUrl) and asked.sha256]
    if not pinned:
        return
    folders = {item.override for step in steps().values() for item in step.meta.artifacts.values() if item.base}
    for name in sorted(folders.intersection(pinned)):
        message = "a base URL holds several files, so one sha256 cannot be right for them"
        yield document.problem(("overrides", name, "sha256"), message, "leave sha256 out; the lock pins each file")
