"""The rules for the ends of support of Windows, Kubernetes and containerd, at a given date. Pure."""

import dataclasses
import datetime
from collections.abc import Iterator, Mapping
from typing import Final

from imagegen.catalog.facts import JsonObject, find_row, is_listed, table
from imagegen.documents.yaml import YamlPath
from imagegen.judging import ERROR, WARNING, Finding, RuleInput, rule

_SOON: Final = datetime.timedelta(days=90)


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
        version = config.kubernetes.version
        rows = {name: row for name, row in rows.items() if is_listed(row["newest_patch"], version)}
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
def support_ended(given: RuleInput) -> Iterator[Finding]:
    for product in _products(given):
        if product.end < given.today and not given.config.allow_eol:
            yield Finding(
                product.path,
                f"support of {product.title} ended on {product.end}: it no longer receives security fixes",
                f"choose {product.later}, or write allow_eol: true, which the manifest records",
            )


@rule(
    "support-ended-allowed",
    WARNING,
    "Windows, Kubernetes and containerd should be supported, even where allow_eol is true",
    why="a node without security fixes endangers every workload on it",
)
def support_ended_allowed(given: RuleInput) -> Iterator[Finding]:
    for product in _products(given):
        if product.end < given.today and given.config.allow_eol:
            yield Finding(
                product.path,
                f"support of {product.title} ended on {product.end}, and allow_eol permits the build",
                f"upgrade to {product.later}",
            )


@rule(
    "support-ends-soon",
    WARNING,
    "Windows, Kubernetes and containerd should be supported for 90 more days",
    why="nodes of this image may run longer than the support, and testing the next version takes time",
)
def support_ends_soon(given: RuleInput) -> Iterator[Finding]:
    for product in _products(given):
        if given.today <= product.end <= given.today + _SOON:
            yield Finding(
                product.path,
                f"support of {product.title} ends on {product.end}",
                f"plan the upgrade to {product.later}",
            )


@rule("allow-eol-idle", WARNING, "allow_eol should be true only where support has ended")
def allow_eol_idle(given: RuleInput) -> Iterator[Finding]:
    if given.config.allow_eol and not any(product.end < given.today for product in _products(given)):
        yield Finding(
            ("allow_eol",),
            "allow_eol has no effect: everything in the config is still supported",
            "leave it out until it is needed",
        )
