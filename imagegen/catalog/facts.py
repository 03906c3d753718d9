"""Reads the catalogue, and finds the facts that apply to one config. Reads only the package's own files."""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from imagegen.base.contents import CATALOG
from imagegen.providers.registry import PROVIDERS, provider_folder, provider_folders

JsonObject = dict[str, Any]

# Bounded, because Python refuses to read a number of thousands of digits.
_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


def table(name: str) -> JsonObject:
    """One table of the catalogue: its general rows, and those of each provider."""
    return _table(name, *PROVIDERS.values())


@functools.cache
def _table(name: str, *_packages: str) -> JsonObject:
    return read_rows(*(folder / f"{name}.json" for folder in folders()))


def folders() -> list[Path]:
    """The folders with tables."""
    return [CATALOG, *(folder / "catalogue" for folder in provider_folders())]


def provider_text(provider: str, name: str) -> str:
    """The text of a file beside a provider's tables."""
    return (provider_folder(provider) / "catalogue" / name).read_text(encoding="utf-8")


def catalogue_text(name: str) -> str:
    """The text of a file beside the tables, of whichever provider has it."""
    (path,) = [folder / name for folder in folders() if (folder / name).is_file()]
    return path.read_text(encoding="utf-8")


@functools.cache
def read_rows(*files: Path) -> JsonObject:
    """The content of several JSON files as one object. Their maps and lists are merged."""
    return functools.reduce(_merge, (json.loads(file.read_bytes()) for file in files if file.is_file()), {})


def _merge(rows: Any, others: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(rows, dict):
        return rows | {key: _merge(rows[key], value) if key in rows else value for key, value in others.items()}
    return [*rows, *others] if isinstance(rows, list) else others


def sources(name: str) -> dict[str, dict[str, str]]:
    """The sources of a table, by the key that its rows use: the address (`from`) and the day (`read`)."""
    return cast("dict[str, dict[str, str]]", table(name)["sources"])


def minor(version: str) -> str:
    """The minor of a version: `1.36` for `1.36.2`."""
    return ".".join(version.split(".")[:2])


@functools.lru_cache(maxsize=4096)
def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, which can be compared: `(1, 36, 2)` for `1.36.2-rc.1`. Empty if it is not a version.

    Unlike in packaging's Version, a pre-release equals its release, and the tag of an image may have any suffix.
    """
    core = version.partition("-")[0]
    return tuple(int(part) for part in core.split(".")) if _NUMBERS.fullmatch(core) else ()


@dataclasses.dataclass(frozen=True)
class CatalogRow:
    """The row that applies to a version. `newer` if the version's minor is newer than every row."""

    row: JsonObject
    minor: str
    newer: bool


def find_row(rows: Mapping[str, JsonObject], version: str) -> CatalogRow | None:
    """The row of the version's minor. The newest row applies to newer minors of its major, but not to a new major."""
    wanted = numbers(minor(version))
    by_number = {numbers(name): name for name in rows}
    newest = max(by_number)
    newer = len(wanted) == 2 and wanted[0] == newest[0] and wanted > newest
    name = by_number.get(newest if newer else wanted)
    return None if name is None else CatalogRow(rows[name], name, newer)


def is_compatible(line: JsonObject, kubernetes: str) -> bool:
    """Whether a containerd line works with a Kubernetes version."""
    first, last, version = line["kubernetes"]["first"], line["kubernetes"]["last"], numbers(minor(kubernetes))
    return not (first and version < numbers(first)) and not (last and version > numbers(last))


def is_listed(containerd: str, kubernetes: str) -> bool:
    """Whether containerd's own list says that the version works with a Kubernetes version.

    Lines that are newer than the list work too. Kubernetes minors that are not in the list have no restriction.
    """
    row = table("containerd")["tested"].get(minor(kubernetes))
    if row is None:
        return True
    least = {minor(version): numbers(version) for version in row["at_least"]}
    return numbers(containerd) >= least.get(minor(containerd), max(least.values()))


def is_overlay(plugin: str, mode: str | None) -> bool:
    """Whether a CNI plugin creates an overlay network, in this mode or else in its default mode."""
    row = table("cni")["plugins"][plugin]
    return bool(row["overlay"] or (mode or row["default_mode"]) in row["overlay_modes"])


def paths() -> dict[str, str]:
    """The paths on the machine."""
    return cast("dict[str, str]", table("layout")["paths"])


def stock_paths(provider: str) -> frozenset[str]:
    """The paths that a new machine of this cloud has."""
    return frozenset([*table("layout")["stock"], *table("machines")["stock"][provider]["paths"]])


def limit_of(name: str) -> JsonObject:
    """The limit of a cloud or of Windows for a kind of name or number: `max`, `pattern` and the `reason`."""
    return cast("JsonObject", table("limits")["limits"][name])


@dataclasses.dataclass(frozen=True)
class Replacement:
    """What to write instead of a variable of image-builder."""

    key: str | None
    """The key of the config with the same meaning."""
    note: str | None
    """How the values differ, or what to do if there is no key."""


def replacements() -> dict[str, Replacement]:
    """The replacement of every variable, by its name."""
    data = table("image-builder")
    with_key = {name: Replacement(row["key"], row["note"]) for name, row in data["variables"].items()}
    groups = data["without_key"].values()
    return with_key | {name: Replacement(None, row["note"]) for row in groups for name in row["variables"]}


def hint_for(name: str, *, only_keys: bool = False) -> str | None:
    """The hint for a variable; None if there is no such variable or, with `only_keys`, no key that replaces it."""
    found = replacements().get(name)
    if found is None or (only_keys and found.key is None):
        return None
    if found.key is None:
        return f"imagegen has no key for image-builder's {name}: {found.note}"
    return f"image-builder's {name} is {found.key} here" + (f": {found.note}" if found.note else "")
