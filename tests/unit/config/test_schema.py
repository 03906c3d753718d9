"""The schema for editors: it is fresh, takes what the model takes, and refuses what a glance can refuse."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from imagegen.catalog.facts import table
from imagegen.cli.inspection import known_facts, overrides
from imagegen.config.fields import keys
from imagegen.config.model import ImageConfig
from imagegen.config.schema import FILE_NAME, MODELINE, config_schema, schema_text
from imagegen.config.yaml import parse_yaml, read_yaml
from tests.golden_files import compare_golden
from tests.json_schema import import_jsonschema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIGS = Path(__file__).parents[3] / "configs"
FILE = CONFIGS / FILE_NAME
SHIPPED = sorted(CONFIGS.glob("*.yaml"))


@cache
def schema() -> dict[str, Any]:
    return config_schema(known_facts())


@cache
def validator() -> Any:  # noqa: ANN401 - jsonschema has no types
    jsonschema = import_jsonschema()
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def wrong_at(data: Any) -> set[str]:  # noqa: ANN401 - any document
    return {".".join(map(str, error.absolute_path)) for error in validator().iter_errors(data)}


def told_at(data: Any) -> str:  # noqa: ANN401 - any document
    """Where an editor would underline: in the member of a union that was meant."""
    error = import_jsonschema().exceptions.best_match(validator().iter_errors(data))
    return ".".join(map(str, error.absolute_path))


def minimal() -> dict[str, Any]:
    """What the reference says without its comments: the required keys, and a little."""
    found: dict[str, Any] = copy.deepcopy(read_yaml(CONFIGS / "reference.yaml").data)
    return found


def test_schema_is_fresh() -> None:
    compare_golden({FILE: schema_text(schema())})


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


REQUIRED = [key.path for key in keys() if key.field.is_required() and "[]" not in key.path and "*" not in key.path]


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
    assert wrong_at({"extends": ["base.yaml"], "kubernetes": {"version": "1.36.4", "vresion": "1"}}) == {"kubernetes"}
    assert wrong_at({"extends": "base.yaml", "executables": [{"url": "https://example.com/a"}]}) == {"executables.0"}


def test_releases_overrides_and_gates_are_offered() -> None:
    assert schema()["$defs"]["Windows"]["properties"]["release"]["examples"] == list(table("windows")["releases"])
    offered = schema()["properties"]["overrides"]["properties"]
    assert set(offered) == set(overrides())
    assert offered["containerd_url"]["description"] == "The https URL of containerd, instead of the public one."
    assert "kubelet.exe" in offered["kubernetes_base_url"]["description"]
    gates = schema()["$defs"]["Kubernetes"]["properties"]["feature_gates"]["properties"]
    assert set(gates) == set(table("kubelet")["feature_gates"])
    assert gates["WinDSR"]["description"] == ("Kubernetes has it from 1.14 on; it cannot be switched off from 1.34 on.")


@pytest.mark.parametrize(
    ("gate", "value", "where"),
    [
        ("WinDSR", True, ""),
        ("NobodyKnowsThis", True, ""),
        ("WinDSR", "on", "kubernetes.feature_gates.WinDSR"),
        ("NobodyKnowsThis", "on", "kubernetes.feature_gates.NobodyKnowsThis"),
        ("winDSR", True, "kubernetes.feature_gates"),
    ],
)
def test_gates_that_nobody_knows_are_taken(gate: str, value: object, where: str) -> None:
    data = minimal()
    data["kubernetes"]["feature_gates"] = {gate: value}
    assert wrong_at(data) == ({where} if where else set())


def subschemas(node: Any, at: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401 - any part of a schema
    """Every schema in it, by its place."""
    if not isinstance(node, dict):
        return
    yield at, node
    for keyword in ("properties", "$defs"):
        for name, value in node.get(keyword, {}).items():
            yield from subschemas(value, f"{at}/{keyword}/{name}")
    for keyword in ("items", "additionalProperties", "propertyNames", "if", "then", "else"):
        yield from subschemas(node.get(keyword), f"{at}/{keyword}")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, value in enumerate(node.get(keyword, ())):
            yield from subschemas(value, f"{at}/{keyword}/{index}")


# What JSON Schema knows, and the one word of editors'.
KEYWORDS = {
    *("$schema", "$id", "$ref", "$defs", "$comment", "title", "description", "default", "examples", "type", "enum"),
    *(
        "const",
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "items",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
    ),
    *("then", "else", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"),
    *("minProperties", "patternErrorMessage"),
}
OF_TYPES = {
    "object": {"properties", "required", "additionalProperties", "minProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"pattern", "minLength", "maxLength"},
    "integer": {"minimum", "maximum"},
}


def test_strict_validators_take_the_schema() -> None:
    """What a strict ajv refuses: a required key or a keyword that it does not know, a type that is not said."""
    for at, node in subschemas(schema()):
        assert set(node) <= KEYWORDS, at
        assert set(node.get("required", ())) <= set(node.get("properties", {})), at
        types = node.get("type", "string" if at.endswith("/propertyNames") else [])
        said = {types} if isinstance(types, str) else set(types)
        assert len(said - {"null"}) <= 1, at
        for type_, keywords in OF_TYPES.items():
            assert not keywords & set(node) or type_ in said, f"{at}: {keywords & set(node)} without {type_}"


def test_every_pattern_is_explained_and_every_key_described() -> None:
    for at, node in subschemas(schema()):
        if "pattern" in node:
            assert re.match(r"This (value|name) is not valid\. .{5}", node["patternErrorMessage"]), at
        if "/else" not in at and not at.endswith(("/if", "/then")):
            without = [name for name, value in node.get("properties", {}).items() if not value.get("description")]
            assert without == [], at


def test_a_wrong_value_is_answered_with_its_description_and_an_example() -> None:
    data = minimal()
    data["kubernetes"]["version"] = "v1.36"
    data["runtime"]["containerd"]["registry_mirrors"] = {"Docker.io": ["https://mirror.example.com"]}
    said = [error.schema["patternErrorMessage"] for error in validator().iter_errors(data)]
    assert said == [
        'This value is not valid. The Kubernetes version, in quotes: "1.36.4". For example: 1.36.4',
        "This name is not valid. The mirrors of each registry. containerd tries them in this order, and then the "
        "registry. For example: docker.io",
    ]


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ({"file": "a.ps1", "arguments": ["-Level:"]}, "scripts.0"),
        ({"file": "a.ps1", "arguments": [""]}, "scripts.0"),
        ({"file": "a.ps1", "good_exit_codes": []}, "scripts.0"),
        ({"file": "a.ps1", "timeout_s": 0}, "scripts.0"),
        ({"arguments": ["a"]}, "scripts.0"),
        ("../a.ps1", "scripts.0"),
    ],
)
def test_a_script_has_a_file_and_arguments_that_powershell_takes(script: object, path: str) -> None:
    base = {
        "name": "node",
        "windows": {"release": "2022"},
        "kubernetes": {"version": "1.36.4"},
        "runtime": {"containerd": {"version": "2.3.4"}},
        "targets": {"aws": {"region": "us-east-1"}},
    }
    fine = [{"file": "a.ps1", "arguments": ["-Level", "a:", "-Name:b"], "good_exit_codes": [-1, 3010]}, "b.ps1"]
    assert len(ImageConfig.model_validate({**base, "scripts": fine}).all_scripts) == 2
    with pytest.raises(pydantic.ValidationError) as refused:
        ImageConfig.model_validate({**base, "scripts": [script]})
    assert {".".join(map(str, error["loc"][:2])) for error in refused.value.errors()} == {path}
