"""Steps of an operator's own: where they lie, and what their options are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.base.contents import SHIPPED
from imagegen.base.errors import ConfigError
from imagegen.config.load import compose
from imagegen.plan import loading
from imagegen.steps.model import load_steps, with_own_steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

META = """\
summary: an agent of the operator
after: [kubernetes]
reads: []
timeout_s: 60
options:
  server: {type: string, default: one.example.com, description: "Where it reports to.", example: two.example.com}
  hosts: {type: list, default: [a, b], description: "What it watches.", example: [c]}
"""
CONFIG = """\
name: own
windows: {release: "2022"}
kubernetes: {version: "1.36.4"}
runtime: {containerd: {version: "2.3.4"}}
steps_path: steps
targets: {aws: {region: us-east-1, network: {allowed_cidrs: ["192.0.2.0/24"]}}}
"""


def make_step(folder: Path, meta: str = META) -> None:
    (folder / "meta").mkdir(parents=True)
    (folder / "meta/step.yml").write_text(meta)
    (folder / "resources.yml").write_text("- environment: {name: AGENT, value: \"{{ options.hosts | join(',') }}\"}\n")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return file


def refused(file: Path) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        with_own_steps(SHIPPED, compose(file, is_text=lambda _: True))
    (problem,) = caught.value.problems
    return problem.path, problem.message


def test_own_steps_come_beside_the_shipped(config: Path, load: Callable[..., loading.Loaded]) -> None:
    make_step(config.parent / "steps/agent")
    loaded = load(config)
    assert set(loaded.steps) == {*loading.load_steps(), "agent"}
    environment = {
        draft.fields["name"]: draft.fields["value"]
        for step in pipeline.prepare_target(loaded, "aws").steps
        for draft in step.drafts
        if draft.kind == "environment"
    }
    assert environment["AGENT"] == "a,b"


def test_folder_lies_beside_the_file_that_names_it(tmp_path: Path, load: Callable[..., loading.Loaded]) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "base/base.yaml").write_text(CONFIG)
    make_step(tmp_path / "base/steps/agent")
    (tmp_path / "config.yaml").write_text("extends: base/base.yaml\n")
    assert "agent" in load(tmp_path / "config.yaml").steps


def test_folder_must_be_there(config: Path) -> None:
    assert refused(config) == ("steps_path", f"the folder {config.parent / 'steps'} does not exist")


def test_no_link_leads_out(config: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    make_step(elsewhere / "agent")
    (config.parent / "steps").symlink_to(elsewhere)
    path, message = refused(config)
    assert path == "steps_path"
    assert message == f"{config.parent / 'steps'} is outside {config.parent}"


def test_a_shipped_name_is_taken(config: Path, load: Callable[..., loading.Loaded]) -> None:
    make_step(config.parent / "steps/containerd")
    with pytest.raises(ConfigError) as caught:
        load(config).steps  # noqa: B018 - it is read when it is asked for
    assert [problem.message for problem in caught.value.problems] == ["ansible-win/roles/containerd has the same name"]


def test_an_override_of_an_own_artifact_is_known(config: Path, load: Callable[..., loading.Loaded]) -> None:
    artifact = "artifacts: {agent: {url: https://example.com/agent.exe, override: agent_url}}\n"
    make_step(config.parent / "steps/agent", META + artifact)
    config.write_text(f"{CONFIG}overrides: {{agent_url: https://mirror.example.com/a.exe}}\n")
    (agent,) = (step for step in pipeline.prepare_target(load(config), "aws").steps if step.step.name == "agent")
    assert agent.requests["agent"].url == "https://mirror.example.com/a.exe"


def test_what_the_config_gives_replaces_the_default(config: Path) -> None:
    make_step(config.parent / "steps/agent")
    step = load_steps(with_own_steps(SHIPPED, compose(config, is_text=lambda _: True)).step_roots)["agent"]
    assert step.options({"agent": {"server": "x"}, "other": {"hosts": ["y"]}}) == {
        "server": "x",
        "hosts": ["a", "b"],
    }


@pytest.mark.parametrize(
    "option",
    [
        '{type: integer, default: "60", description: "How often it reports.", example: 30}',
        '{type: boolean, default: 1, description: "Whether it reports.", example: true}',
        '{type: list, default: [1], description: "What it watches.", example: [c]}',
        '{type: string, default: "x", description: "Where it reports to.", example: 5}',
        '{type: float, default: 1, description: "Where it reports to.", example: 5}',
    ],
)
def test_default_and_example_have_the_type(config: Path, option: str, load: Callable[..., loading.Loaded]) -> None:
    make_step(config.parent / "steps/agent", META.partition("options:")[0] + f"options:\n  one: {option}\n")
    with pytest.raises(ConfigError):
        load(config).steps  # noqa: B018 - it is read when it is asked for


def test_shipped_steps_have_no_options() -> None:
    """The config's model is the one truth for them."""
    assert [name for name, step in loading.load_steps().items() if step.meta.options] == []
