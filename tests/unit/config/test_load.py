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

from imagegen.config.load import load_config
from imagegen.config.model import ImageConfig, PinnedUrl
from imagegen.documents.problems import _models_in
from imagegen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.errors import Problem

REPOSITORY = Path(__file__).parents[3]
CONFIGS = [*sorted((REPOSITORY / "configs").glob("*.yaml")), *sorted((REPOSITORY / "tests/golden").glob("*.yaml"))]
OVERRIDES = ["containerd_url", "kubernetes_base_url", "cloudbase_init_url", "crictl_url"]
MAXIMAL = load_config(REPOSITORY / "tests/golden/maximal.yaml", overrides=lambda: OVERRIDES)[1].data


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_our_own_configs_load(file: Path) -> None:
    config, document = load_config(file, overrides=lambda: OVERRIDES)
    assert config.name == document.data["name"] == file.stem


def test_defaults() -> None:
    config, _ = load_config(REPOSITORY / "tests/golden/minimal.yaml", overrides=lambda: OVERRIDES)
    assert (config.windows.edition, config.cloudbase_init.version, config.cloudbase_init.user) == (
        "core",
        "1.1.8",
        "capi",
    )
    assert config.overrides == {}
    assert config.targets.aws is not None
    assert (config.targets.aws.instance_type, config.targets.aws.disk_size_gb) == ("m6i.large", 50)
    assert config.targets.azure is not None
    assert (config.targets.azure.vm_size, config.targets.azure.gallery.version) == ("Standard_D4s_v5", "date")
    assert [settings.publish.regions for settings in config.targets.named().values()] == [[], []]


def test_both_forms_of_an_override() -> None:
    config, _ = load_config(REPOSITORY / "tests/golden/maximal.yaml", overrides=lambda: OVERRIDES)
    assert isinstance(config.overrides["containerd_url"], PinnedUrl)
    assert config.overrides["cloudbase_init_url"] == "https://artifacts.example.com/cloudbase-init.msi"


def test_names_of_overrides_are_asked_only_where_one_is_used() -> None:
    def never() -> list[str]:
        pytest.fail("nothing is overridden")

    load_config(REPOSITORY / "tests/golden/minimal.yaml", overrides=never)


def test_a_config_cannot_be_changed() -> None:
    config, _ = load_config(CONFIGS[0], overrides=lambda: OVERRIDES)
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
        for inner in _models_in(field.annotation):
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


@given(place=st.sampled_from(PLACES), value=ODD)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        load_config(file, overrides=lambda: OVERRIDES)
    except ConfigError as error:
        return error.problems or pytest.fail(f"a fault without a place: {error.message}")
    return ()


@pytest.mark.parametrize("place", [place for place in PLACES if isinstance(place[-1], str)], ids=str)
def test_any_key_misspelt_is_told_with_what_was_meant(tmp_path: Path, place: tuple[Any, ...]) -> None:
    data = copy.deepcopy(MAXIMAL)
    inner = data
    for part in place[:-1]:
        inner = inner[part]
    inner[f"{place[-1]}x"] = inner.pop(place[-1])
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides=lambda: OVERRIDES)
    hints = [problem.hint for problem in caught.value.problems]
    assert f"did you mean {place[-1]!r}?" in hints
