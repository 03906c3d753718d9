"""Every key of the config has an effect on the image, on how it is built or on where it is published; or it is refused
by name because it is not implemented yet. tests/data/key-effects.json has a row per key."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import RefusedError
from imagegen.config.fields import keys
from imagegen.config.yaml import read_yaml
from imagegen.rules.unimplemented import features
from tests.conftest import load_today
from tests.signing_support import sign_all, write_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.plan.model import BuildPlan

    Decide = Callable[[Path, str], Any]

ROWS: dict[str, dict[str, Any]] = json.loads(Path(__file__).parents[2].joinpath("data/key-effects.json").read_text())
KEYS = {key.path: key for key in keys() if not key.inner}
PARTS = ("image", "build", "publish")
MAXIMAL = Path(__file__).parents[2] / "golden" / "maximal.yaml"

BASE: dict[str, Any] = {
    "name": "example",
    "windows": {"release": "2022"},
    "kubernetes": {"version": "1.36.1"},
    "runtime": {"containerd": {"version": "2.3.3"}},
    "targets": {
        "aws": {"region": "eu-west-1", "network": {"allowed_cidrs": ["192.0.2.0/24"]}},
        "azure": {
            "location": "westeurope",
            "gallery": {"resource_group": "images", "name": "images", "definition": "windows"},
        },
    },
}


def test_every_key_has_a_row() -> None:
    assert sorted(ROWS) == sorted(KEYS)


def test_every_key_shows_an_example() -> None:
    assert [path for path, key in KEYS.items() if not key.field.examples] == []


def test_every_unimplemented_feature_is_met() -> None:
    by_value = {name for name, row in features().items() if any("values" in asked_by for asked_by in row["asked_by"])}
    refused = {row["refused"] for row in ROWS.values() if "refused" in row}
    assert set(features()) - by_value <= refused <= set(features())


@pytest.mark.parametrize("path", ROWS)
def test_key_has_its_effect(path: str, decide: Decide, tmp_path: Path) -> None:
    """`value` is another value, or the key's own first example; `with` is what must stand beside it, `without` what it
    takes the place of, `files` what must lie beside the config, `signed` the folder with the signed scripts, and `on`
    the cloud, where only one has an effect."""
    row = ROWS[path]
    for name, text in row.get("files", {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = copy.deepcopy(BASE)
    for place, value in row.get("with", {}).items():
        _put(before, place, value)
    if "signed" in row:
        write_root(tmp_path)
    after = copy.deepcopy(before)
    for place in row.get("without", []):
        _put(after, place, None)
    _put(after, path, row.get("value", next(iter(KEYS[path].field.examples or []))))
    assert after != before
    is_azures = path.startswith("targets.azure.") or path.endswith(".azure") or row.get("on") == "azure"
    target = "azure" if is_azures else "aws"
    if "signed" in row:
        sign_all(load_today(_written(after, tmp_path)), target, folder=row["signed"])
    if "refused" in row:
        with pytest.raises(RefusedError) as refused:
            _decided(after, target, decide, tmp_path)
        assert any(f"({row['refused']})" in problem.message for problem in refused.value.problems)
        return
    first, second = _decided(before, target, decide, tmp_path), _decided(after, target, decide, tmp_path)
    assert [part for part in PARTS if first.parts[part] != second.parts[part]] == row["parts"]
    assert (first.plan.image_id != second.plan.image_id) == ("image" in row["parts"])


@pytest.mark.parametrize(("target", "other"), [("aws", "azure"), ("azure", "aws")])
def test_the_settings_of_one_target_change_no_other(target: str, other: str, decide: Decide, tmp_path: Path) -> None:
    """Not even all of them at once."""
    after = copy.deepcopy(BASE)
    settings = read_yaml(MAXIMAL).data["targets"][target]
    # These two are for another Windows, and for other services of cloudbase-init.
    others = ("base_image", "require_imds_tokens")
    after["targets"][target] = {key: value for key, value in settings.items() if key not in others}
    assert _decided(after, other, decide, tmp_path).plan == _decided(BASE, other, decide, tmp_path).plan
    assert _decided(after, target, decide, tmp_path).plan != _decided(BASE, target, decide, tmp_path).plan


def test_a_base_image_of_ones_own_needs_no_offer_of_the_cloud(decide: Decide, tmp_path: Path) -> None:
    config = copy.deepcopy(BASE)
    _put(config, "windows.release", "annual")
    _put(config, "allow_eol", True)
    _put(config, "targets.aws.base_image", {"name": "own-*"})
    plan = _decided(config, "aws", decide, tmp_path).plan
    assert (plan.image.windows["release"], plan.image.base["owner"]) == ("annual", "self")


def _put(config: dict[str, Any], path: str, value: object) -> None:
    inner: Any = config
    *parents, last = path.replace("overrides.*", "overrides.crictl_url").split(".")
    for parent in parents:
        inner = inner[parent.removesuffix("[]")][0] if parent.endswith("[]") else inner.setdefault(parent, {})
    inner[last] = value


def _written(config: dict[str, Any], folder: Path) -> Path:
    file = folder / "config.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(config))
    return file


@dataclasses.dataclass(frozen=True)
class Planned:
    """A plan, and its parts as JSON."""

    plan: BuildPlan
    parts: dict[str, Any]


# Most rows start from the same config; those with files of their own are decided anew.
_ONCE: dict[tuple[str, str], Planned] = {}


def _decided(config: dict[str, Any], target: str, decide: Decide, folder: Path) -> Planned:
    text = json.dumps(config)
    if (text, target) in _ONCE:
        return _ONCE[text, target]
    plan: BuildPlan = decide(_written(config, folder), target).decision.plan
    planned = Planned(plan, plan.as_json())
    if "steps_path" not in config:
        _ONCE[text, target] = planned
    return planned
