"""Versions and releases: whether the catalogue knows them, and whether Windows comes as it is asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.catalog.facts import known, minor, table
from imagegen.judging import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.documents.yaml import YamlPath
    from imagegen.judging import RuleInput

_RELEASE: YamlPath = ("windows", "release")
_KUBERNETES: YamlPath = ("kubernetes", "version")
_CONTAINERD: YamlPath = ("runtime", "containerd", "version")


@rule(
    "kubernetes-known",
    ERROR,
    "The Kubernetes minor must be in the catalogue",
    why="the pause image, crictl, the feature gates and the end of support come from the catalogue",
)
def kubernetes_known(given: RuleInput) -> Iterator[Finding]:
    yield from _unknown(_KUBERNETES, "Kubernetes", given.config.kubernetes.version, "kubernetes", "minors")


@rule(
    "kubernetes-newer-than-catalogue",
    WARNING,
    "The Kubernetes minor should not be newer than the catalogue",
    why="nobody has checked which pause image, crictl and flags that Kubernetes needs",
)
def kubernetes_newer(given: RuleInput) -> Iterator[Finding]:
    yield from _newer(_KUBERNETES, "Kubernetes", given.config.kubernetes.version, "kubernetes", "minors")


@rule(
    "containerd-known",
    ERROR,
    "The containerd line must be in the catalogue",
    why="the config schema, the fitting Kubernetes minors and the end of support come from the catalogue",
)
def containerd_known(given: RuleInput) -> Iterator[Finding]:
    if containerd := given.config.runtime.containerd:
        yield from _unknown(_CONTAINERD, "containerd", containerd.version, "containerd", "lines")


@rule(
    "containerd-newer-than-catalogue",
    WARNING,
    "The containerd line should not be newer than the catalogue",
    why="nobody has checked which config schema and which Kubernetes that containerd needs",
)
def containerd_newer(given: RuleInput) -> Iterator[Finding]:
    if containerd := given.config.runtime.containerd:
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
        yield Finding(
            path,
            f"{product} {minor(version)} is newer than the catalogue: the facts of {found.minor} are taken",
            f"choose {found.minor}, or read what has changed since and try the image",
        )


@rule("cloudbase-init-known", WARNING, "The cloudbase-init version should be in the catalogue")
def cloudbase_init_known(given: RuleInput) -> Iterator[Finding]:
    version, versions = given.config.cloudbase_init.version, table("cloudbase-init")["versions"]
    if version not in versions:
        yield Finding(
            ("cloudbase_init", "version"),
            f"the catalogue does not know cloudbase-init {version}, and nobody has tried it here",
            f"known: {', '.join(versions)}",
        )


@rule(
    "windows-release-known",
    ERROR,
    "The Windows release must be in the catalogue",
    why="base images, registry fixes and container images depend on the release",
)
def windows_release_known(given: RuleInput) -> Iterator[Finding]:
    release, windows = given.config.windows.release, table("windows")
    if release not in windows["releases"] and release not in windows["refused"]:
        yield Finding(
            _RELEASE,
            f"the catalogue knows no Windows release {release!r}",
            f"choose one of {', '.join(windows['releases'])}",
        )


@rule("windows-release-refused", ERROR, "The Windows release must still work as a Kubernetes node")
def windows_release_refused(given: RuleInput) -> Iterator[Finding]:
    windows = table("windows")
    if refused := windows["refused"].get(given.config.windows.release):
        yield Finding(_RELEASE, refused["reason"], f"choose one of {', '.join(windows['releases'])}")


@rule("windows-edition", ERROR, "The Windows release must exist in this edition")
def windows_edition(given: RuleInput) -> Iterator[Finding]:
    windows = given.config.windows
    release = table("windows")["releases"].get(windows.release)
    if release and windows.edition not in release["editions"]:
        yield Finding(
            ("windows", "edition"),
            f"{release['title']} has no edition {windows.edition!r}",
            f"choose {' or '.join(release['editions'])}",
        )
