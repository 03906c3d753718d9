"""Reads the catalogue and picks the facts that one config needs. Pure but for reading the package's own files."""

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

from imagegen.contents import CATALOG
from imagegen.providers.registry import PROVIDERS, provider_folder, provider_folders

JsonObject = dict[str, Any]

# Bounded, because Python refuses to read a number of thousands of digits.
_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


def table(name: str) -> JsonObject:
    """One table of the catalogue: its general rows, and those of each provider."""
    return _table(name, *PROVIDERS.values())


@cache
def _table(name: str, *_packages: str) -> JsonObject:
    return read_rows(*(folder / f"{name}.json" for folder in folders()))


def folders() -> list[Path]:
    """Where tables lie."""
    return [CATALOG, *(folder / "catalogue" for folder in provider_folders())]


def provider_text(provider: str, name: str) -> str:
    """A file beside a provider's tables."""
    return (provider_folder(provider) / "catalogue" / name).read_text(encoding="utf-8")


@cache
def read_rows(*files: Path) -> JsonObject:
    """JSON files as one: maps and lists go together."""
    together: JsonObject = {}
    for file in files:
        if file.is_file():
            _add(together, json.loads(file.read_bytes()))
    return together


def _add(rows: JsonObject, others: JsonObject) -> None:
    for key, value in others.items():
        have = rows.get(key)
        if isinstance(have, dict):
            _add(have, value)
        elif isinstance(have, list):
            have.extend(value)
        else:
            rows[key] = value


def sources(name: str) -> dict[str, dict[str, str]]:
    """Where a table's facts come from: `from` and `read` by the key that its rows name."""
    return cast("dict[str, dict[str, str]]", table(name)["sources"])


def minor(version: str) -> str:
    """`1.36` of `1.36.2`."""
    return ".".join(version.split(".")[:2])


@lru_cache(maxsize=4096)
def numbers(version: str) -> tuple[int, ...]:
    """`(1, 36, 2)` of `1.36.2-rc.1`, so that versions compare as numbers. Empty for what is no version.

    Not packaging's Version: a pre-release has what its release has, and an image's tag goes on after the dash.
    """
    core = version.partition("-")[0]
    return tuple(int(part) for part in core.split(".")) if _NUMBERS.fullmatch(core) else ()


@dataclasses.dataclass(frozen=True)
class CatalogRow:
    """The row that speaks for a version; `newer` where the version's own minor came after every row."""

    row: JsonObject
    minor: str
    newer: bool


def find_row(rows: Mapping[str, JsonObject], version: str) -> CatalogRow | None:
    """The minor's row. A minor after the newest takes the newest row; a new major promises nothing, and is unknown."""
    asked = numbers(minor(version))
    by_number = {numbers(name): name for name in rows}
    newest = max(by_number)
    if asked in by_number:
        name = by_number[asked]
        return CatalogRow(rows[name], name, newer=False)
    if len(asked) == 2 and asked[0] == newest[0] and asked > newest:
        return CatalogRow(rows[by_number[newest]], by_number[newest], newer=True)
    return None


def is_compatible(line: JsonObject, kubernetes: str) -> bool:
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


def is_overlay(plugin: str, mode: str | None) -> bool:
    """Whether a CNI plugin, in its own mode or another, makes an overlay network."""
    row = table("cni")["plugins"][plugin]
    return bool(row["overlay"] or (mode or row["default_mode"]) in row["overlay_modes"])


def paths() -> dict[str, str]:
    """Where things lie on the machine."""
    return cast("dict[str, str]", table("layout")["paths"])


def stock_paths(provider: str) -> frozenset[str]:
    """What a machine of that cloud has before anything was done."""
    return frozenset([*table("layout")["stock"], *table("machines")["stock"][provider]["paths"]])


def limit_of(name: str) -> JsonObject:
    """What a cloud or Windows takes as one kind of name or number: `max`, `pattern` and the `reason`."""
    return cast("JsonObject", table("limits")["limits"][name])
