"""Verbs that find several targets: all of a cloud, one after another, each told and failing on its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.base.errors import BuildError, ExitCode, PublishError
from tests.conftest import load_today
from tests.unit.pipeline.test_targets import CONFIG
from tests.unit.record.test_manifest_store import manifest, reported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.plan.target import PreparedTarget
    from imagegen.record.manifest import ImageManifest

    Ran = Callable[..., tuple[object, str, str]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_explain_tells_a_named_target_by_its_name(file: Path, run: Ran) -> None:
    code, out, _ = run("explain", file, "--target", "prod", "--format", "json")
    paths = [value["path"] for value in json.loads(out)["values"]]
    assert code == 0
    assert {"targets.prod.region", "targets.prod.base_image", "cloudbase_init.plugins.aws"} <= set(paths)
    assert [path for path in paths if path.startswith(("targets.", "cloudbase_init.plugins."))] == [
        path for path in paths if path.startswith(("targets.prod.", "cloudbase_init.plugins.aws"))
    ]


class Making:
    """Builds in the place of real ones: some fail."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.failing: dict[str, Exception] = {}

    def __call__(self, target: PreparedTarget, *_: object) -> ImageManifest:
        self.made.append(target.name)
        if target.name in self.failing:
            raise self.failing[target.name]
        return manifest().model_copy(update={"target": target.name})


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Making:
    found = Making()
    monkeypatch.setattr(pipeline, "check_and_lock", lambda *_, **__: None)
    monkeypatch.setattr(pipeline, "build", found)
    return found


def test_a_cloud_builds_its_targets_one_after_another(file: Path, run: Ran, making: Making) -> None:
    words = ("build", file, "--target", "aws", "--set", "targets.aws=null", "--format", "json")
    code, out, _ = run(*words)
    assert (code, making.made) == (0, ["prod", "dr"])
    assert [item["target"] for item in json.loads(out)] == ["prod", "dr"]


def test_one_target_is_told_as_ever(file: Path, run: Ran, making: Making) -> None:
    code, out, _ = run("build", file, "--target", "prod", "--format", "json")
    assert (code, making.made, json.loads(out)["target"]) == (0, ["prod"], "prod")


def test_what_the_machine_left_out_is_a_warning(
    file: Path, run: Ran, making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = {"containerd/archive:containerd": {"count": 12, "names": ["version.dll", "x.dll"]}}
    made = making(pipeline.prepare_target(load_today(file), "prod"))
    made = made.model_copy(update={"report": reported(left_out=left_out), "report_missing": None})
    monkeypatch.setattr(pipeline, "build", lambda *_, **__: made)
    code, _, err = run("build", file, "--target", "prod")
    line = (
        "containerd/archive:containerd: left out, because the plan does not list them: version.dll, x.dll and 10 more"
    )
    assert (code, f"warning: {line}\n" in err) == (0, True), err


def test_one_that_fails_keeps_no_other_from_being_built(file: Path, run: Ran, making: Making) -> None:
    making.failing = {"prod": PublishError("the region is away"), "dr": BuildError("sysprep failed")}
    code, out, err = run("build", file, "--target", "aws", "--set", "targets.aws=null", "--format", "json")
    assert (code, making.made, json.loads(out)) == (ExitCode.PUBLISH, ["prod", "dr"], [])
    assert err.count("error: the region is away") == err.count("error: sysprep failed") == 1
    making.failing = {"prod": BuildError("sysprep failed")}
    code, out, _ = run("build", file, "--target", "aws", "--set", "targets.aws=null")
    assert code == ExitCode.BUILD
    assert out.splitlines()[0].endswith(" for dr")


def test_several_clouds_are_not_built_without_a_word(file: Path, run: Ran, making: Making) -> None:
    code, _, err = run("build", file)
    assert (code, making.made) == (ExitCode.USAGE, [])
    assert "choose one: --target aws or --target prod or --target dr or --target gallery-2" in err
