"""Settings that are not implemented yet: each row has keys of the model, and a config that uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from imagegen.base.contents import ROLES
from imagegen.config.fields import keys
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.rules.unimplemented import RULE, features, find_unimplemented
from imagegen.settle.spec import settle_targets

PATHS = {key.path.replace("[]", "") for key in keys()}
ROWS = [(name, asked_by) for name, feature in features().items() for asked_by in feature["asked_by"]]

PLAIN: dict[str, Any] = {
    "name": "example",
    "windows": {"release": "2022"},
    "kubernetes": {"version": "1.36.4"},
    "runtime": {"containerd": {"version": "2.3.4"}},
    "targets": {
        "aws": {"region": "eu-west-1"},
        "azure": {"location": "westeurope", "gallery": {"resource_group": "a", "name": "b", "definition": "c"}},
    },
}


def asked(config: dict[str, Any]) -> list[str]:
    document = Document("config.yaml", config, {})
    model = ImageConfig.model_validate(config)
    problems = find_unimplemented(model, settle_targets(model, document), document)
    assert {problem.rule for problem in problems} <= {RULE}
    return [f"{problem.path}: {problem.message}" for problem in problems]


def test_rows_speak_of_keys_of_the_model() -> None:
    assert not [asked_by["path"] for _, asked_by in ROWS if asked_by["path"] not in PATHS]


def test_what_is_a_step_is_built() -> None:
    steps = {folder.name for folder in Path(ROLES).iterdir()}
    assert not steps & set(features())


def test_a_plain_config_asks_for_nothing() -> None:
    assert asked(PLAIN) == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [(name, row["path"], value) for name, row in ROWS for value in row.get("values", [])],
)
def test_a_named_value_asks_for_it(name: str, path: str, value: str) -> None:
    config = {**PLAIN, "targets": {cloud: dict(settings) for cloud, settings in PLAIN["targets"].items()}}
    inner: Any = config
    *parents, last = path.split(".")
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    said = asked(config)
    assert len(said) == 1
    assert said[0].startswith(f"{path}: ")
    assert said[0].endswith(f"({name})")


def test_a_key_of_a_section_that_is_left_out_asks_for_nothing() -> None:
    assert asked({**PLAIN, "ansible": None}) == []
    aws = {**PLAIN["targets"]["aws"], "publish": {"keep_newest": 3}}
    (said,) = asked({**PLAIN, "targets": {"aws": aws}})
    assert said.startswith("targets.aws.publish.keep_newest: ")
