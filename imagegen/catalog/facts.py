"""Reads the catalogue and picks the facts that one config needs. Pure but for reading the package's own files."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any, cast

from imagegen.contents import CATALOG

JsonObject = dict[str, Any]


@cache
def table(name: str) -> JsonObject:
    """One file of the catalogue."""
    return cast("JsonObject", json.loads((CATALOG / f"{name}.json").read_bytes()))


def minor(version: str) -> str:
    """`1.36` of `1.36.2`."""
    return ".".join(version.split(".")[:2])


def paths() -> dict[str, str]:
    """Where things lie on the machine."""
    return cast("dict[str, str]", table("layout")["paths"])


def stock_paths(target: str) -> frozenset[str]:
    """What a machine of that cloud has before anything was done."""
    layout = table("layout")
    return frozenset([*layout["stock"], *layout["stock_on"][target]])


@dataclasses.dataclass(frozen=True)
class Versions:
    """What a config asks for, as far as the catalogue has something to say about it."""

    windows: str
    edition: str
    kubernetes: str
    containerd: str
    cloudbase_init: str


def facts_for(versions: Versions, target: str) -> JsonObject:
    """What the catalogue says about these versions on this target; steps read it as `facts`."""
    kubernetes = table("kubernetes")["minors"][minor(versions.kubernetes)]
    cloudbase = table("cloudbase-init")
    return {
        "pause": kubernetes["pause"],
        "crictl": kubernetes["crictl"],
        "hot_fixes": table("windows")["releases"][versions.windows]["hot_fixes"],
        "containerd_config_version": table("containerd")["lines"][minor(versions.containerd)]["config_version"],
        "cloudbase_init": {
            "product": cloudbase["product"].format(version=versions.cloudbase_init),
            **cloudbase["clouds"][target],
        },
    }


def windows_for(versions: Versions, target: str) -> JsonObject:
    """The Windows that the base image must be, and how that cloud names it."""
    release = table("windows")["releases"][versions.windows]
    return {
        "release": versions.windows,
        "edition": versions.edition,
        "build": release["build"],
        target: release["images"][versions.edition][target],
    }
