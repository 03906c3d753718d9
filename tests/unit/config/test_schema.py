"""The schema for editors: it is fresh, takes what the model takes, and refuses what a glance can refuse."""

from __future__ import annotations

import copy
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest

from imagegen import pipeline
from imagegen.catalog.facts import table
from imagegen.config.fields import keys
from imagegen.config.schema import FILE_NAME, MODELINE, config_schema, schema_text
from imagegen.documents.yaml import parse_yaml, read_yaml
from imagegen.rules.awaited import notes

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIGS = Path(__file__).parents[3] / "configs"
FILE = CONFIGS / FILE_NAME
SHIPPED = sorted(CONFIGS.glob("*.yaml"))


@cache
def schema() -> dict[str, Any]:
    return config_schema(list(table("windows")["releases"]), pipeline.override_names(), notes())


@cache
def validator() -> Any:  # noqa: ANN401 - jsonschema has no types
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def wrong_at(data: Any) -> set[str]:  # noqa: ANN401 - any document
    return {".".join(map(str, error.absolute_path)) for error in validator().iter_errors(data)}


def told_at(data: Any) -> str:  # noqa: ANN401 - any document
    """Where an editor would underline: in the member of a union that was meant."""
    error = jsonschema.exceptions.best_match(validator().iter_errors(data))
    return ".".join(map(str, error.absolute_path))


def minimal() -> dict[str, Any]:
    """What the reference says without its comments: the required keys, and a little."""
    found: dict[str, Any] = copy.deepcopy(read_yaml(CONFIGS / "reference.yaml").data)
    return found


def test_schema_is_fresh() -> None:
    text = schema_text(schema())
    if os.environ.get("IMAGEGEN_UPDATE_GOLDEN"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text, f"configs/{FILE_NAME} is not what the model says: make golden"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_config_names_the_schema_and_meets_it(file: Path) -> None:
    assert file.read_text(encoding="utf-8").splitlines()[0] == MODELINE
    assert wrong_at(read_yaml(file).data) == set()


def test_whole_reference_meets_the_schema() -> None:
    lines = [
        line.replace("#", "", 1) if line.lstrip().startswith("#") and not line.lstrip().startswith("# ") else line
        for line in (CONFIGS / "reference.yaml").read_text(encoding="utf-8").splitlines()
    ]
    data = parse_yaml("\n".join(lines).encode(), "reference").data
    assert data["runtime"]["docker"]
    assert data["credential_providers"]
    assert wrong_at(data) == set()


def _put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    *parents, last = path.split(".")

    def put(data: dict[str, Any]) -> None:
        for part in parents:
            data = data.setdefault(part, {})
        data[last] = value

    return put


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("wimdows", {}, ""),
        ("windows.relaese", "2022", "windows"),
        ("kubernetes.version", 1.36, "kubernetes.version"),
        ("runtime.containerd.max_concurrent_downloads", 51, "runtime.containerd.max_concurrent_downloads"),
        ("targets.aws.disk.type", "gp4", "targets.aws.disk.type"),
        ("overrides.containerd", "https://example.com/a", "overrides"),
        ("overrides.containerd_url", "http://example.com/a", "overrides.containerd_url"),
        ("overrides.containerd_url", {"sha256": "0" * 64}, "overrides.containerd_url"),
        ("executables", [{"url": "https://example.com/a.exe"}], "executables.0"),
    ],
)
def test_schema_refuses(path: str, value: object, where: str) -> None:
    data = minimal()
    _put(path, value)(data)
    assert told_at(data) == where


REQUIRED = [key.path for key in keys() if key.required and "[]" not in key.path and "*" not in key.path]


@pytest.mark.parametrize("path", REQUIRED)
def test_required_key_may_be_left_to_what_is_extended(path: str) -> None:
    data = minimal()
    *parents, last = path.split(".")
    section = data
    for part in parents:
        section = section.setdefault(part, {})
        section = section if isinstance(section, dict) else {}
    section.pop(last, None)
    assert ".".join(parents) in wrong_at(data)
    assert wrong_at({**data, "extends": "base.yaml"}) == set()


def test_extending_does_not_open_the_schema() -> None:
    assert wrong_at({"extends": ["base.yaml"], "kubernetes": {"version": "1.36.2", "vresion": "1"}}) == {"kubernetes"}
    assert wrong_at({"extends": "base.yaml", "executables": [{"url": "https://example.com/a"}]}) == {"executables.0"}


def test_releases_and_overrides_are_offered() -> None:
    assert schema()["$defs"]["Windows"]["properties"]["release"]["examples"] == list(table("windows")["releases"])
    assert "containerd_url" in schema()["properties"]["overrides"]["properties"]
    assert all(node.get("description") for node in schema()["$defs"].values())
