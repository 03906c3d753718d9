"""Ends of support of Windows, Kubernetes and containerd, measured at the given day. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import is_listed, known, table
from imagegen.judging import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.catalog.facts import JsonObject
    from imagegen.documents.yaml import YamlPath
    from imagegen.judging import RuleInput

_SOON: Final = datetime.timedelta(days=90)


@dataclasses.dataclass(frozen=True)
class _Product:
    """Something whose support ends."""

    path: YamlPath
    title: str
    end: datetime.date
    later: str
    """What is supported today and for longer, as a choice."""


def _products(given: RuleInput) -> Iterator[_Product]:
    config = given.config
    kubernetes = known(table("kubernetes")["minors"], config.kubernetes.version)
    # Of what came after the newest row nobody here knows the end.
    if kubernetes and not kubernetes.newer:
        title, rows = f"Kubernetes {kubernetes.minor}", table("kubernetes")["minors"]
        yield _product(("kubernetes", "version"), title, kubernetes.row, rows, given.today)
    containerd, rows = config.runtime.containerd, table("containerd")["lines"]
    line = known(rows, containerd.version) if containerd else None
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
    return _Product(path, title, end, " or ".join(later) or "what comes after it")


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
                f"support of {product.title} ended on {product.end}: nobody mends its security holes",
                f"choose {product.later}; or say allow_eol: true, which the manifest records",
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
                f"support of {product.title} ended on {product.end}, and allow_eol builds it all the same",
                f"move to {product.later}",
            )


@rule(
    "support-ends-soon",
    WARNING,
    "Windows, Kubernetes and containerd should be supported for 90 more days",
    why="nodes of this image outlive the support, and the next minor takes time to test",
)
def support_ends_soon(given: RuleInput) -> Iterator[Finding]:
    for product in _products(given):
        if given.today <= product.end <= given.today + _SOON:
            yield Finding(
                product.path, f"support of {product.title} ends on {product.end}", f"plan for {product.later}"
            )


@rule("allow-eol-idle", WARNING, "allow_eol should be true only where support has ended")
def allow_eol_idle(given: RuleInput) -> Iterator[Finding]:
    if given.config.allow_eol and not any(product.end < given.today for product in _products(given)):
        yield Finding(
            ("allow_eol",),
            "everything here is still supported, so this would first do something on the day when that ends",
            "leave it out until it is needed",
        )
