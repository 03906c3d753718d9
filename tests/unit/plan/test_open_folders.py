"""Each folder of a plan is closed or says why it is open. The messages are in tests/errors/plan.yaml."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.contents import PACKER, read_folder
from imagegen.base.errors import ConfigError
from imagegen.plan.open_folders import find_open_folders
from imagegen.plan.resolve import resolve
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from imagegen.steps.evaluate import EvaluatedStep
    from tests.conftest import Decided

GOLDEN = REPOSITORY / "tests" / "golden"
CONFIGS = (
    *sorted(REPOSITORY.glob("configs/windows-*.yaml")),
    *(GOLDEN / f"{name}.yaml" for name in ("minimal", "maximal", "older-node")),
    REPOSITORY / "tests" / "data" / "docker.yaml",
)
PLACES = """\
name: places
windows: {release: "2022"}
kubernetes: {version: "1.36.4", install_path: 'C:\\Kube\\a\\bin'}
runtime: {containerd: {version: "2.3.4"}}
executables:
- {url: "https://example.com/1", path: 'C:\\Tools\\x\\one.exe'}
- {url: "https://example.com/2", path: 'C:\\tools\\two.exe'}
- {url: "https://example.com/3", path: 'C:\\ProgramData\\Own\\three.exe'}
- {url: "https://example.com/4", path: 'C:\\kube\\four.exe'}
- {url: "https://example.com/5", path: 'C:\\Kube\\a\\bin\\more\\five.exe'}
- {url: "https://example.com/6", path: 'C:\\opt\\own\\six.exe'}
- {url: "https://example.com/7", path: 'C:\\Program Files\\Own\\seven.exe'}
- {url: "https://example.com/8", path: 'C:\\eight.exe'}
targets: {aws: {region: us-east-1, network: {allowed_cidrs: ["192.0.2.0/24"]}}}
"""
TOP = (r"C:\etc", r"C:\opt", r"C:\run", r"C:\usr", r"C:\var")


def without_acl(steps: Iterable[EvaluatedStep], path: str) -> tuple[EvaluatedStep, ...]:
    kept = [
        dataclasses.replace(
            step, drafts=tuple(one for one in step.drafts if (one.kind, one.fields.get("path")) != ("acl", path))
        )
        for step in steps
    ]
    return tuple(kept)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_no_shipped_step_makes_an_open_folder(decide: Callable[[Path, str], Decided], config: Path) -> None:
    for target in decide(config, "aws").loaded.specs:
        steps = decide(config, target).target.steps
        assert list(find_open_folders(steps)) == []
        assert [draft for step in steps for draft in step.drafts if draft.fields.get("open")] == []


@pytest.mark.parametrize("path", [*TOP, r"C:\k", r"C:\ProgramData\containerd", r"C:\ProgramData\imagegen"])
def test_a_plan_with_a_forgotten_acl_is_refused(decide: Callable[[Path, str], Decided], path: str) -> None:
    decided = decide(CONFIGS[0], "aws")
    steps, guest = without_acl(decided.target.steps, path), read_folder(PACKER / "guest")
    with pytest.raises(ConfigError) as caught:
        resolve(decided.target.spec, decided.lock, steps, guest, {}, {})
    messages = [problem.message for problem in caught.value.problems]
    assert f"{path} inherits its rights, so every account of the node could change it" in messages


def test_the_folders_above_programs_of_the_config_are_closed(
    decide: Callable[[Path, str], Decided], tmp_path: Path
) -> None:
    config = tmp_path / "places.yaml"
    config.write_text(PLACES)
    decided = decide(config, "aws")
    assert decided.target.spec.facts.closed_folders == (*TOP, r"C:\Kube", r"C:\Kube\a")
    assert decided.target.spec.facts.program_folders == (r"C:\Tools", r"C:\Tools\x", r"C:\ProgramData\Own")
    assert list(find_open_folders(decided.target.steps)) == []
    acls: dict[str, Any] = {
        draft.fields["path"]: draft.fields["entries"][:2]
        for step in decided.target.steps
        for draft in step.drafts
        if draft.kind == "acl" and step.step.name in ("executables", "system")
    }
    full = [{"sid": sid, "rights": "full"} for sid in ("S-1-5-18", "S-1-5-32-544")]
    for folder in (*decided.target.spec.facts.program_folders, *decided.target.spec.facts.closed_folders):
        assert acls[folder] == full


def test_an_own_steps_reason_is_a_warning_and_in_the_plan(
    decide: Callable[..., Decided], load: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "steps/drop/meta").mkdir(parents=True)
    meta = "summary: a folder for everybody\nafter: [kubernetes]\nreads: []\ntimeout_s: 60\n"
    (tmp_path / "steps/drop/meta/step.yml").write_text(meta)
    (tmp_path / "steps/drop/resources.yml").write_text("- directory: {path: 'C:\\drop', open: all leave files here}\n")
    config = tmp_path / "config.yaml"
    config.write_text(f"steps_path: steps\n{(REPOSITORY / 'tests/rules/base.yaml').read_text()}")
    warnings = [problem for problem in load(config).warnings if "drop" in problem.file]
    (warning,) = {problem.message for problem in warnings}
    assert warning.startswith(r"C:\drop is open, so every account of the node can change what is in it")
    assert len(warnings) == 1
    planned = decide(config, "aws").decision.plan.image.phases
    fields = {one.id: one.fields for phase in planned for step in phase.steps for one in step.resources}
    assert fields["drop/directory:C:\\drop"] == {"path": r"C:\drop", "open": "all leave files here"}
    assert fields["system/directory:C:\\etc"] == {"path": r"C:\etc", "open": None}
