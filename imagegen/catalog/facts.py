"""Reads the catalogue and picks the facts that one config needs. Pure but for reading the package's own files."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from imagegen.contents import CATALOG

if TYPE_CHECKING:
    from collections.abc import Mapping

JsonObject = dict[str, Any]

# Bounded, because Python refuses to read a number of thousands of digits.
_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


@cache
def table(name: str) -> JsonObject:
    """One file of the catalogue."""
    return cast("JsonObject", json.loads((CATALOG / f"{name}.json").read_bytes()))


def sources(name: str) -> dict[str, dict[str, str]]:
    """Where a table's facts come from: `from` and `read` by the key that its rows name."""
    return cast("dict[str, dict[str, str]]", table(name)["sources"])


def minor(version: str) -> str:
    """`1.36` of `1.36.2`."""
    return ".".join(version.split(".")[:2])


def numbers(version: str) -> tuple[int, ...]:
    """`(1, 36, 2)` of `1.36.2-rc.1`, so that versions compare as numbers. Empty for what is no version."""
    core = version.partition("-")[0]
    return tuple(int(part) for part in core.split(".")) if _NUMBERS.fullmatch(core) else ()


class Known(NamedTuple):
    """The row that speaks for a version; `newer` where the version's own minor came after every row."""

    row: JsonObject
    minor: str
    newer: bool


def known(rows: Mapping[str, JsonObject], version: str) -> Known | None:
    """The minor's row. A minor after the newest takes the newest row; a new major promises nothing, and is unknown."""
    asked = numbers(minor(version))
    by_number = {numbers(name): name for name in rows}
    newest = max(by_number)
    if asked in by_number:
        name = by_number[asked]
        return Known(rows[name], name, newer=False)
    if len(asked) == 2 and asked[0] == newest[0] and asked > newest:
        return Known(rows[by_number[newest]], by_number[newest], newer=True)
    return None


def goes_with(line: JsonObject, kubernetes: str) -> bool:
    """Whether a containerd line works with a Kubernetes version."""
    first, last, asked = line["kubernetes"]["first"], line["kubernetes"]["last"], numbers(minor(kubernetes))
    return not (first and asked < numbers(first)) and not (last and asked > numbers(last))


def is_listed(containerd: str, kubernetes: str) -> bool:
    """Whether containerd's own list has the version with a Kubernetes version. What is newer than the newest line in
    its row was released later, and goes with it too; of a minor without a row nothing is said."""
    row = table("containerd")["tested"].get(minor(kubernetes))
    if row is None:
        return True
    least = {minor(one): numbers(one) for one in row["at_least"]}
    return numbers(containerd) >= least.get(minor(containerd), max(least.values()))


def paths() -> dict[str, str]:
    """Where things lie on the machine."""
    return cast("dict[str, str]", table("layout")["paths"])


def stock_paths(target: str) -> frozenset[str]:
    """What a machine of that cloud has before anything was done."""
    layout = table("layout")
    return frozenset([*layout["stock"], *layout["stock_on"][target]])


def limit_of(name: str) -> JsonObject:
    """What a cloud or Windows takes as one kind of name or number: `max`, `pattern` and the `reason`."""
    return cast("JsonObject", table("limits")["limits"][name])


class Versions(NamedTuple):
    """What a config asks for, as far as the catalogue has something to say about it."""

    windows: str
    edition: str
    kubernetes: str
    containerd: str | None
    cloudbase_init: str


def facts_for(versions: Versions, target: str) -> JsonObject:
    """What the catalogue says about these versions on this target; steps read it as `facts`.

    Whatever it does not know is None or empty: rules ask before they refuse.
    """
    kubernetes = known(table("kubernetes")["minors"], versions.kubernetes)
    containerd = known(table("containerd")["lines"], versions.containerd) if versions.containerd else None
    cloudbase = table("cloudbase-init")
    cloud = cloudbase["clouds"][target]
    return {
        "pause": pause_for(versions.kubernetes, versions.windows) if kubernetes else None,
        "crictl": kubernetes.row["crictl"] if kubernetes else None,
        "hot_fixes": table("windows")["releases"].get(versions.windows, {}).get("hot_fixes", []),
        "containerd_config_version": containerd.row["config_version"] if containerd else None,
        "containerd_cni_bin_dirs": containerd.row["cni_bin_dirs"] if containerd else None,
        "cloudbase_init": {
            "product": cloudbase["product"].format(version=versions.cloudbase_init),
            "metadata_service": cloud["metadata_service"],
            "plugins": cloud["plugins"],
        },
    }


def pause_for(kubernetes_version: str, windows_release: str) -> str:
    """The minor's pause image, but never one without a layer for that Windows."""
    found = known(table("kubernetes")["minors"], kubernetes_version)
    if found is None:
        raise KeyError(f"the catalogue knows no Kubernetes {minor(kubernetes_version)}")
    image, _, tag = found.row["pause"].rpartition(":")
    least = table("windows")["releases"].get(windows_release, {}).get("pause_at_least") or tag
    return f"{image}:{max(tag, least, key=numbers)}"


def windows_for(versions: Versions, target: str, generation: str = "2") -> JsonObject:
    """The Windows that the base image must be, and how that cloud names it; no name where the cloud has no such image:
    one of the operator's own is that Windows all the same."""
    release = table("windows")["releases"][versions.windows]
    image = release["images"][versions.edition][target]
    named = {"name": image["name"]} if target == "aws" else {"offer": image["offer"], "sku": image["sku"][generation]}
    offered = None if None in named.values() else named
    return {"release": versions.windows, "edition": versions.edition, "build": release["build"], target: offered}
