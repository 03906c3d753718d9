"""Finds settings of a config that are not implemented yet. Pure.

Such settings are rejected, never ignored. A row lists keys: a key counts where its value is not the default or, where
the row lists values, where it is one of those. A row is deleted when its feature is implemented; a test compares the
rows with the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import pydantic

from imagegen.base.errors import WARNING, Problem
from imagegen.catalog.facts import read_rows
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document, YamlPath
from imagegen.providers.registry import provider_folders

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec

RULE = "not-built-yet"


class AskedBy(TypedDict):
    """A key that requires a feature; `values` where only these require it."""

    path: str
    values: NotRequired[list[str]]


class Feature(TypedDict):
    """A feature that is not implemented yet, and the keys that require it."""

    what: str
    asked_by: list[AskedBy]


def features() -> dict[str, Feature]:
    """The features that are not implemented yet, by name: the general ones, and those of each provider."""
    return read_rows(*(folder / "unimplemented.json" for folder in (Path(__file__).parent, *provider_folders())))


def find_unimplemented(config: ImageConfig, specs: Mapping[str, Spec], document: Document) -> list[Problem]:
    """Find every setting that requires a feature that is not implemented yet."""
    return [
        dataclasses.replace(
            document.problem(
                path,
                f"{feature['what']} is not implemented yet ({name})",
                f"leave it out; `imagegen rules {name}` lists the keys that require it",
            ),
            severity=WARNING,
            rule=RULE,
        )
        for name, feature in features().items()
        for path in _paths(feature, config, specs)
    ]


def _paths(feature: Feature, config: ImageConfig, specs: Mapping[str, Spec]) -> Iterator[YamlPath]:
    """The keys of a config that require a feature."""
    for row in feature["asked_by"]:
        path, values = tuple(row["path"].split(".")), row.get("values")
        if path[0] != "targets":
            yield from _find_keys(config, path, values)
        # A row names a provider, and applies to every target of that provider.
        for target, spec in specs.items():
            if path[:2] == ("targets", spec.provider):
                yield from _find_keys(spec.settings, path[2:], values, ("targets", target))


def notes() -> dict[str, str]:
    """The notes for the reference, by the path of the key."""
    values: dict[str, list[str]] = {}
    for row in (row for feature in features().values() for row in feature["asked_by"]):
        values.setdefault(row["path"], []).extend(row.get("values", []))
    return {path: f"not implemented yet{': ' if asked else ''}{', '.join(asked)}" for path, asked in values.items()}


def _find_keys(value: object, path: YamlPath, values: Sequence[object] | None, at: YamlPath = ()) -> Iterator[YamlPath]:
    name, rest = path[0], path[1:]
    if name == "*" and isinstance(value, dict):
        for key, item in value.items():
            yield from _find_keys(item, rest, values, (*at, key))
        return
    # A section that is left out and the short form of an override have no such key.
    if not isinstance(value, pydantic.BaseModel):
        return
    item = getattr(value, str(name))
    if rest:
        yield from _find_keys(item, rest, values, (*at, name))
    elif (item in values) if values is not None else item != _default(value, str(name)):
        yield (*at, name)


def _default(model: pydantic.BaseModel, name: str) -> object:
    return type(model).model_fields[name].get_default(call_default_factory=True, validated_data={})
