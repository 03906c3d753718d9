"""A config file in: defaults, and for whatever is wrong a problem with a line, never another error."""

from __future__ import annotations

import copy
import json
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imagegen.base.errors import ConfigError
from imagegen.config.artifact_policy import PinnedUrl
from imagegen.config.load import read_config
from imagegen.config.model import ImageConfig
from imagegen.config.problems import models_in
from imagegen.plan.loading import override_names
from imagegen.providers.aws.settings import Settings as AwsSettings
from imagegen.providers.azure.settings import Settings as AzureSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.base.errors import Problem
    from imagegen.config.load import Read

REPOSITORY = Path(__file__).parents[3]
CONFIGS = [*sorted((REPOSITORY / "configs").glob("*.yaml")), *sorted((REPOSITORY / "tests/golden").glob("*.yaml"))]
STEPS = ["system", "containerd", "kubernetes", "cloudbase-init"]
OVERRIDES = override_names()


def read(file: Path) -> Read:
    """The config of a file, and what is wrong with it."""
    return read_config(file, (), overrides=lambda _: OVERRIDES, steps=lambda _: STEPS)


def config_of(file: Path) -> ImageConfig:
    """The config of a file that has the right form."""
    found = read(file)
    assert found.config is not None
    assert found.problems == ()
    return found.config


MAXIMAL = read(REPOSITORY / "tests/golden/maximal.yaml").document.data


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_our_own_configs_load(file: Path) -> None:
    assert config_of(file).name == read(file).document.data["name"]


def test_defaults() -> None:
    config = config_of(REPOSITORY / "tests/golden/minimal.yaml")
    assert (config.windows.edition, config.cloudbase_init.version, config.cloudbase_init.user) == (
        "core",
        "1.1.8",
        "capi",
    )
    assert config.overrides == {}
    aws, azure = config.targets.named().values()
    assert isinstance(aws, AwsSettings)
    assert isinstance(azure, AzureSettings)
    assert (aws.instance_types, aws.disk.size_gb, aws.publish.regions) == (["m6i.large"], 50, [])
    assert (azure.vm_sizes, azure.gallery.version, azure.publish.regions) == (["Standard_D4s_v5"], "date", [])


def test_both_forms_of_an_override() -> None:
    config = config_of(REPOSITORY / "tests/golden/maximal.yaml")
    assert isinstance(config.overrides["containerd_url"], PinnedUrl)
    assert config.overrides["cloudbase_init_url"] == "https://artifacts.example.com/cloudbase-init.msi"


def test_names_of_overrides_and_steps_are_asked_only_where_one_is_used() -> None:
    def never(_: object) -> list[str]:
        pytest.fail("nothing is overridden, and no step has a time of its own")

    read_config(REPOSITORY / "tests/golden/minimal.yaml", (), overrides=never, steps=never)


@pytest.mark.parametrize("value", [None, [], 5, {"system": 5}, {"system": "5"}])
def test_steps_are_named_below_a_section_only(tmp_path: Path, value: object) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({**MAXIMAL, "timeouts": {"steps": value}}))
    assert not any("unknown step" in problem.message for problem in read(file).problems)
    file.write_text(json.dumps({**MAXIMAL, "timeouts": value}))
    assert not any("unknown step" in problem.message for problem in read(file).problems)


def test_a_config_cannot_be_changed() -> None:
    config = config_of(CONFIGS[0])
    with pytest.raises(pydantic.ValidationError):
        config.name = "another"  # type: ignore[misc]  # what is tested


def test_every_key_describes_itself() -> None:
    silent = [
        name for name, field in _fields(ImageConfig) if not (field.description or "").strip().endswith((".", "`."))
    ]
    assert silent == []


def _fields(model: type[pydantic.BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield f"{model.__name__}.{name}", field
        for inner in models_in(field.annotation):
            yield from _fields(inner)


def _places(value: Any, under: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - any YAML
    items: typing.Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*under, key)
        yield from _places(item, (*under, key))


PLACES = list(_places(MAXIMAL))
ODD: st.SearchStrategy[object] = st.sampled_from(
    [None, True, -1, 10**9, 1.5, "", "x", "-", "A" * 300, "https://x/y", [], [None], {}, {"x": 1}, [[]]]
)


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("overrides", {"containerd_url": {"url": "https://x/y", "sha256": "z"}}),
        ("overrides", {"containerd_url": {"url": "https://x/y", "sha": "z"}}),
        ("overrides", {"containerd_url": {"sha256": "0" * 64}}),
        ("ansible", {"before": ["roles/x"], "variables": {"x": [1]}}),
        ("images", ["registry.example.com/a:1", 5]),
        ("kubernetes", {"version": "1.36.4", "feature_gates": {"small": True}}),
    ],
)
def test_what_is_left_of_a_wrong_section_is_for_the_rules(tmp_path: Path, section: str, value: object) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({**MAXIMAL, section: value}))
    found = read(file)
    assert found.problems
    assert found.config is not None
    assert found.unread == {section}


@given(place=st.sampled_from(PLACES), value=ODD)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_anywhere_is_taken_or_told_with_its_line(
    tmp_path: Path, place: tuple[Any, ...], value: object
) -> None:
    data = copy.deepcopy(MAXIMAL)
    inner = data
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    text = json.dumps(data, indent=1)
    file = tmp_path / "config.yaml"
    file.write_text(text)
    for problem in _problems(file):
        assert problem.file == str(file)
        assert 1 <= problem.line <= text.count("\n") + 1
        assert problem.path.startswith(str(place[0]))
        inside = ("pydantic", "str_", "validator", "Input should")
        assert not any(word in problem.message + problem.hint for word in inside)


def _problems(file: Path) -> tuple[Problem, ...]:
    try:
        return read(file).problems
    except ConfigError as error:
        return error.problems or pytest.fail(f"a fault without a place: {error.message}")


# Their keys are of free choice: none of them is a misspelling of another.
FREE = {"env", "feature_gates", "kubelet_flags", "registry_mirrors", "region_kms_keys", "tags"}
NAMED = [place for place in PLACES if isinstance(place[-1], str) and not FREE & set(place[:-1])]


@pytest.mark.parametrize("place", NAMED, ids=str)
def test_any_key_misspelt_is_told_with_what_was_meant(tmp_path: Path, place: tuple[Any, ...]) -> None:
    data = copy.deepcopy(MAXIMAL)
    inner = data
    for part in place[:-1]:
        inner = inner[part]
    inner[f"{place[-1]}x"] = inner.pop(place[-1])
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(data))
    hints = [problem.hint for problem in read(file).problems]
    assert f'did you mean "{place[-1]}"?' in hints


def test_what_is_meant_well_and_plain_is_taken(tmp_path: Path) -> None:
    """A digest as PowerShell's Get-FileHash prints it, and Docker's own way of numbering."""
    minimal = read(REPOSITORY / "tests/golden/minimal.yaml").document.data
    data = {
        **{key: value for key, value in minimal.items() if key != "runtime"},
        "runtime": {"docker": {"version": "19.03.12"}},
        "overrides": {"crictl_url": {"url": "https://mirror.example.com/crictl.tar.gz", "sha256": "AB" * 32}},
    }
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(data))
    found = read(file)
    assert (found.problems, found.config is not None) == ((), True)
    assert found.config
    override = found.config.overrides["crictl_url"]
    assert not isinstance(override, str)
    assert override.sha256 == "ab" * 32
