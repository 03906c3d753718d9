"""Versions and releases: whether the catalogue knows them, and whether Windows comes as it is asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.catalog.facts import known, minor, table
from imagegen.rules.rule import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.documents.yaml import YamlPath
    from imagegen.rules.rule import Asked

_RELEASE: YamlPath = ("windows", "release")
_KUBERNETES: YamlPath = ("kubernetes", "version")
_CONTAINERD: YamlPath = ("runtime", "containerd", "version")


@rule("kubernetes-known", ERROR, "The catalogue knows the Kubernetes minor")
def kubernetes_known(asked: Asked) -> Iterator[Finding]:
    yield from _unknown(_KUBERNETES, "Kubernetes", asked.config.kubernetes.version, "kubernetes", "minors")


@rule("kubernetes-newer-than-catalogue", WARNING, "The Kubernetes minor is not newer than the catalogue")
def kubernetes_newer(asked: Asked) -> Iterator[Finding]:
    yield from _newer(_KUBERNETES, "Kubernetes", asked.config.kubernetes.version, "kubernetes", "minors")


@rule("containerd-known", ERROR, "The catalogue knows the containerd line")
def containerd_known(asked: Asked) -> Iterator[Finding]:
    if containerd := asked.config.runtime.containerd:
        yield from _unknown(_CONTAINERD, "containerd", containerd.version, "containerd", "lines")


@rule("containerd-newer-than-catalogue", WARNING, "The containerd line is not newer than the catalogue")
def containerd_newer(asked: Asked) -> Iterator[Finding]:
    if containerd := asked.config.runtime.containerd:
        yield from _newer(_CONTAINERD, "containerd", containerd.version, "containerd", "lines")


def _unknown(path: YamlPath, product: str, version: str, name: str, rows: str) -> Iterator[Finding]:
    if known(table(name)[rows], version) is None:
        message = f"the catalogue knows no {product} {minor(version)}"
        yield Finding(path, message, f"known: {', '.join(table(name)[rows])}")


def _newer(path: YamlPath, product: str, version: str, name: str, rows: str) -> Iterator[Finding]:
    found = known(table(name)[rows], version)
    if found and found.newer:
        message = f"{product} {minor(version)} is newer than the catalogue: the facts of {found.minor} are taken"
        yield Finding(path, message, f"choose {found.minor}, or read what has changed since and try the image")


@rule("cloudbase-init-known", WARNING, "The catalogue knows the cloudbase-init version")
def cloudbase_init_known(asked: Asked) -> Iterator[Finding]:
    version, versions = asked.config.cloudbase_init.version, table("cloudbase-init")["versions"]
    if version not in versions:
        message = f"the catalogue does not know cloudbase-init {version}, and nobody has tried it here"
        yield Finding(("cloudbase_init", "version"), message, f"known: {', '.join(versions)}")


@rule("windows-release-known", ERROR, "The catalogue knows the Windows release")
def windows_release_known(asked: Asked) -> Iterator[Finding]:
    release, windows = asked.config.windows.release, table("windows")
    if release not in windows["releases"] and release not in windows["refused"]:
        message = f"the catalogue knows no Windows release {release!r}"
        yield Finding(_RELEASE, message, f"choose one of {', '.join(windows['releases'])}")


@rule("windows-release-refused", ERROR, "The Windows release can still be a Kubernetes node")
def windows_release_refused(asked: Asked) -> Iterator[Finding]:
    windows = table("windows")
    if refused := windows["refused"].get(asked.config.windows.release):
        yield Finding(_RELEASE, refused["reason"], f"choose one of {', '.join(windows['releases'])}")


@rule("windows-edition", ERROR, "The Windows release has the edition")
def windows_edition(asked: Asked) -> Iterator[Finding]:
    windows = asked.config.windows
    release = table("windows")["releases"].get(windows.release)
    if release and windows.edition not in release["editions"]:
        message = f"{release['title']} has no edition {windows.edition!r}"
        yield Finding(("windows", "edition"), message, f"choose {' or '.join(release['editions'])}")


@rule("windows-offered", ERROR, "The cloud offers a base image of the release")
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
