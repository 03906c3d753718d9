"""A config in; what it asks for that this version of imagegen cannot make yet, by name, out. Pure.

What is not built is refused, never ignored. A value asks for it where it is not the model's own default, or, where the
row names values, where it is one of these. A row goes when its work is done; a test holds the rows against the model.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import pydantic

from imagegen.catalog.facts import read_rows
from imagegen.errors import WARNING
from imagegen.providers.registry import provider_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document, YamlPath
    from imagegen.errors import Problem
    from imagegen.settle.spec import Spec

RULE = "not-built-yet"


class AskedBy(TypedDict):
    """A key that asks for a feature, and with which values it does where not every one does."""

    path: str
    values: NotRequired[list[str]]


class Feature(TypedDict):
    """What is not built yet, and what asks for it."""

    what: str
    asked_by: list[AskedBy]
    overrides: NotRequired[dict[str, str]]


def features() -> dict[str, Feature]:
    """What is known to the config and not built yet, by name. What is of one cloud lies in its provider's folder."""
    return read_rows(*(folder / "unimplemented.json" for folder in (Path(__file__).parent, *provider_folders())))


def find_unimplemented(config: ImageConfig, specs: Mapping[str, Spec], document: Document) -> list[Problem]:
    """Each place that asks for something that is not built yet."""
    problems = []
    for name, feature in features().items():
        for asked_by in feature["asked_by"]:
            path, values = tuple(asked_by["path"].split(".")), asked_by.get("values")
            for at in _asking_targets(specs, path, values) if path[0] == "targets" else _asking(config, path, values):
                problems.append(_problem(name, feature, document, at))
        problems += [
            _problem(name, feature, document, ("overrides", asked))
            for asked in feature.get("overrides", {})
            if asked in config.overrides
        ]
    return problems


def _problem(name: str, feature: Feature, document: Document, path: YamlPath) -> Problem:
    problem = document.problem(
        path,
        f"{feature['what']} is not built yet ({name})",
        f"leave it out; `imagegen rules {name}` says what asks for it",
    )
    return dataclasses.replace(problem, severity=WARNING, rule=RULE)


def override_names() -> dict[str, str]:
    """The names that artifacts of steps which are not built yet will answer to, and what each moves."""
    return {name: what for feature in features().values() for name, what in feature.get("overrides", {}).items()}


def notes() -> dict[str, str]:
    """What is to be said of a key that asks for something that is not built yet, by its path."""
    rows = [asked_by for feature in features().values() for asked_by in feature["asked_by"]]
    return {row["path"]: ", ".join(["not built yet", *row.get("values", [])]).replace(", ", ": ", 1) for row in rows}


def _asking_targets(specs: Mapping[str, Spec], path: YamlPath, values: Sequence[object] | None) -> Iterator[YamlPath]:
    """A row names a cloud; asked is each target of that cloud."""
    for target, spec in specs.items():
        if spec.provider == path[1]:
            yield from _asking(spec.settings, path[2:], values, ("targets", target))


def _asking(value: object, path: YamlPath, values: Sequence[object] | None, at: YamlPath = ()) -> Iterator[YamlPath]:
    name, rest = path[0], path[1:]
    if name == "*" and isinstance(value, dict):
        for key, item in value.items():
            yield from _asking(item, rest, values, (*at, key))
        return
    # A section that is left out, or the short form of an override, has no such key.
    if not isinstance(value, pydantic.BaseModel):
        return
    found = getattr(value, str(name))
    if rest:
        yield from _asking(found, rest, values, (*at, name))
    elif (found in values) if values is not None else found != _default(value, str(name)):
        yield (*at, name)


def _default(model: pydantic.BaseModel, name: str) -> object:
    return type(model).model_fields[name].get_default(call_default_factory=True, validated_data={})
