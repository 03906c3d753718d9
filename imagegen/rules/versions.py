"""The rules for versions and Windows releases: the catalogue must contain them, and their support must not end soon."""

import dataclasses
import datetime
from collections.abc import Iterator, Mapping
from typing import Final

from imagegen.catalog.facts import JsonObject, find_row, is_listed, minor, table
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule

_RELEASE: YamlPath = ("windows", "release")
_SOON: Final = datetime.timedelta(days=90)


KNOWN: Final = (
    rule(
        "kubernetes-known",
        ERROR,
        "The Kubernetes minor must be in the catalogue",
        why="the pause image, crictl, the feature gates and the end of support come from the catalogue",
    )(lambda given: _unknown(*_kubernetes(given))),
    rule(
        "kubernetes-newer-than-catalogue",
        WARNING,
        "The Kubernetes minor should not be newer than the catalogue",
        why="nobody has checked which pause image, crictl and flags this Kubernetes requires",
    )(lambda given: _newer(*_kubernetes(given))),
    rule(
        "containerd-known",
        ERROR,
        "The containerd line must be in the catalogue",
        why="the config schema, the compatible Kubernetes minors and the end of support come from the catalogue",
    )(lambda given: _unknown(*_containerd(given))),
    rule(
        "containerd-newer-than-catalogue",
        WARNING,
        "The containerd line should not be newer than the catalogue",
        why="nobody has checked which config schema and which Kubernetes this containerd requires",
    )(lambda given: _newer(*_containerd(given))),
)


def _kubernetes(given: RuleInput) -> tuple[YamlPath, str, str, JsonObject]:
    return ("kubernetes", "version"), "Kubernetes", given.config.kubernetes.version, table("kubernetes")["minors"]


def _containerd(given: RuleInput) -> tuple[YamlPath, str, str, JsonObject]:
    """With Docker, the version is empty."""
    containerd = given.config.runtime.containerd
    version = containerd.version if containerd else ""
    return ("runtime", "containerd", "version"), "containerd", version, table("containerd")["lines"]


def _unknown(path: YamlPath, product: str, version: str, rows: JsonObject) -> Iterator[Finding]:
    if version and find_row(rows, version) is None:
        known = list(rows)
        # The catalogue has every minor of Kubernetes between the first and the last.
        choices = f"{known[0]} to {known[-1]}" if product == "Kubernetes" else ", ".join(known)
        yield Finding(path, f"the catalogue has no {product} {minor(version)}", f"known: {choices}")


def _newer(path: YamlPath, product: str, version: str, rows: JsonObject) -> Iterator[Finding]:
    row = find_row(rows, version) if version else None
    if row and row.newer:
        yield Finding(
            path,
            f"{product} {minor(version)} is newer than the catalogue, so imagegen uses the facts of {row.minor}",
            f"choose {row.minor}, or read its release notes and test the image",
        )


@rule("cloudbase-init-known", WARNING, "The cloudbase-init version should be in the catalogue")
def cloudbase_init_known(given: RuleInput) -> Iterator[Finding]:
    version, versions = given.config.cloudbase_init.version, table("cloudbase-init")["versions"]
    if version not in versions:
        yield Finding(
            ("cloudbase_init", "version"),
            f"cloudbase-init {version} is not in the catalogue and not tested with imagegen",
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
            f"unknown Windows release {release!r}",
            f"choose one of {', '.join(windows['releases'])}",
        )


@rule("windows-release-refused", ERROR, "Kubernetes must still support the Windows release")
def windows_release_refused(given: RuleInput) -> Iterator[Finding]:
    windows = table("windows")
    if refused := windows["refused"].get(given.config.windows.release):
        yield Finding(_RELEASE, refused["reason"], f"choose one of {', '.join(windows['releases'])}")


@dataclasses.dataclass(frozen=True)
class _Product:
    """A product whose support ends."""

    path: YamlPath
    title: str
    end: datetime.date
    later: str
    """The versions with longer support, as a hint."""


def _products(given: RuleInput) -> Iterator[_Product]:
    config = given.config
    kubernetes = find_row(table("kubernetes")["minors"], config.kubernetes.version)
    # The end of support of a version that is newer than the catalogue is unknown.
    if kubernetes and not kubernetes.newer:
        title, rows = f"Kubernetes {kubernetes.minor}", table("kubernetes")["minors"]
        yield _product(("kubernetes", "version"), title, kubernetes.row, rows, given.today)
    containerd, rows = config.runtime.containerd, table("containerd")["lines"]
    line = find_row(rows, containerd.version) if containerd else None
    if line and not line.newer:
        rows = {name: row for name, row in rows.items() if is_listed(row["newest_patch"], config.kubernetes.version)}
        yield _product(("runtime", "containerd", "version"), f"containerd {line.minor}", line.row, rows, given.today)
    releases = table("windows")["releases"]
    if release := releases.get(config.windows.release):
        yield _product(("windows", "release"), release["title"], release, releases, given.today)


def _product(
    path: YamlPath, title: str, row: JsonObject, rows: Mapping[str, JsonObject], today: datetime.date
) -> _Product:
    end = _end(row)
    later = [name for name, other in rows.items() if _end(other) >= today and _end(other) > end]
    return _Product(path, title, end, " or ".join(later) or "a later version")


def _end(row: JsonObject) -> datetime.date:
    return datetime.date.fromisoformat(row["end_of_life"])


@rule(
    "support-ended",
    ERROR,
    "Windows, Kubernetes and containerd must be supported, unless allow_eol is true",
    why="a node without security fixes endangers every workload on it",
)
def support_ended(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            product.path,
            f"support of {product.title} ended on {product.end}: it no longer receives security fixes",
            f"choose {product.later}, or write allow_eol: true, which the manifest records",
        )
        for product in _products(given)
        if product.end < given.today and not given.config.allow_eol
    ]


@rule(
    "support-ended-allowed",
    WARNING,
    "Windows, Kubernetes and containerd should be supported, even where allow_eol is true",
    why="a node without security fixes endangers every workload on it",
)
def support_ended_allowed(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            product.path,
            f"support of {product.title} ended on {product.end}, and allow_eol permits the build",
            f"upgrade to {product.later}",
        )
        for product in _products(given)
        if product.end < given.today and given.config.allow_eol
    ]


@rule(
    "support-ends-soon",
    WARNING,
    "Windows, Kubernetes and containerd should be supported for 90 more days",
    why="nodes of this image may run longer than the support, and testing the next version takes time",
)
def support_ends_soon(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            product.path,
            f"support of {product.title} ends on {product.end}",
            f"plan the upgrade to {product.later}",
        )
        for product in _products(given)
        if given.today <= product.end <= given.today + _SOON
    ]


allow_eol_idle = simple_rule(
    "allow-eol-idle",
    WARNING,
    "allow_eol should be true only where support has ended",
    lambda given: given.config.allow_eol and not any(product.end < given.today for product in _products(given)),
    Finding(
        ("allow_eol",),
        "allow_eol has no effect: everything in the config is still supported",
        "leave it out until it is needed",
    ),
)
